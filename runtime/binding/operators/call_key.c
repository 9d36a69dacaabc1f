#include "operators/call_key.h"

#include "expr/value.h"

#define ALIGNMENT 16

static inline uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static bool is_word(PyObject *object)
{
    return object == Py_None || PyLong_CheckExact(object) || PyBool_Check(object) || PyFloat_CheckExact(object) ||
           PyUnicode_CheckExact(object);
}

static uint64_t hash_word(PyObject *word)
{
    if (PyFloat_CheckExact(word)) {
        return (uint64_t)nj_double_bits(PyFloat_AS_DOUBLE(word));
    }
    bool by_value = PyLong_CheckExact(word) || PyUnicode_CheckExact(word);
    return by_value ? (uint64_t)PyObject_Hash(word) : (uint64_t)(uintptr_t)word;
}

bool py_same_word(PyObject *one, PyObject *other)
{
    if (one == other) {
        return true;
    }
    if (Py_TYPE(one) != Py_TYPE(other)) {
        return false;
    }
    if (PyFloat_CheckExact(one)) {
        return nj_double_bits(PyFloat_AS_DOUBLE(one)) == nj_double_bits(PyFloat_AS_DOUBLE(other));
    }
    bool by_value = PyLong_CheckExact(one) || PyUnicode_CheckExact(one);
    return by_value && PyObject_RichCompareBool(one, other, Py_EQ) > 0;
}

/* Hashes the words after the owner. Returns false if one is of a class that may be mutable or may compare in its own way. */
static bool read_words(PyObject *const *words, Py_ssize_t count, py_call_key *key)
{
    key->words = words;
    key->word_count = count;
    for (Py_ssize_t i = 1; i < count; i++) {
        if (!is_word(words[i])) {
            return false;
        }
        key->hash = mix(key->hash, hash_word(words[i]));
    }
    return true;
}

int py_check_words(PyObject *const *words, Py_ssize_t count)
{
    for (Py_ssize_t i = 1; i < count; i++) {
        if (!is_word(words[i]) && !PyNumber_Check(words[i]) && !PyUnicode_Check(words[i])) {
            PyErr_Format(PyExc_TypeError, "expected words that are None, numbers or str, got %.200s",
                         Py_TYPE(words[i])->tp_name);
            return -1;
        }
    }
    return 0;
}

/* Appends the facts of a tensor. Returns 1, or 0 if it has too many dimensions. */
static int add_facts(const py_plain_tensor *tensor, py_call_key *key)
{
    const DLTensor *view = &tensor->view;
    uint64_t *to = key->facts + key->fact_count;
    if (view->ndim > PY_FACTS_RANK_MAX) {
        return 0;
    }
    bool aligned = ((uintptr_t)view->data + view->byte_offset) % ALIGNMENT == 0;
    *to++ = (uint64_t)view->dtype.code | (uint64_t)view->dtype.bits << 8 | (uint64_t)view->dtype.lanes << 16 |
            (uint64_t)(view->ndim + 1) << 32 | (uint64_t)tensor->requires_grad << 40 | (uint64_t)aligned << 41;
    *to++ = (uint64_t)(uint32_t)view->device.device_type << 32 | (uint32_t)view->device.device_id;
    for (int32_t i = 0; i < view->ndim; i++) {
        *to++ = (uint64_t)view->shape[i];
        /* in DLPack, NULL strides mean contiguous */
        *to++ = view->strides == NULL ? UINT64_MAX : (uint64_t)view->strides[i];
    }
    key->fact_count = (size_t)(to - key->facts);
    key->requires_grad |= tensor->requires_grad;
    return 1;
}

static int read_operands(py_plain *plain, Py_ssize_t operand_count, PyObject *const *operands, py_call_key *key)
{
    for (Py_ssize_t i = 0; i < operand_count; i++) {
        if (operands[i] == Py_None) {
            key->facts[key->fact_count++] = 0;
            continue;
        }
        py_plain_tensor tensor;
        int fits = py_plain_read(plain, operands[i], &tensor);
        if (fits > 0) {
            key->views[i] = tensor.view;
            fits = add_facts(&tensor, key);
        }
        if (fits <= 0) {
            return fits;
        }
    }
    for (size_t i = 0; i < key->fact_count; i++) {
        key->hash = mix(key->hash, key->facts[i]);
    }
    return 1;
}

int py_read_call_key(py_plain *plain, Py_ssize_t operand_count, PyObject *const *arguments, Py_ssize_t count, py_call_key *key)
{
    if (count <= operand_count) {
        PyErr_Format(PyExc_TypeError, "expected %zd operands, an owner, and words", operand_count);
        return -1;
    }
    PyObject *const *words = arguments + operand_count;
    key->hash = (uint64_t)(uintptr_t)words[0];
    key->fact_count = 0;
    key->requires_grad = false;
    return read_words(words, count - operand_count, key) ? read_operands(plain, operand_count, arguments, key) : 0;
}
