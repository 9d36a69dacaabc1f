#include "call/classify.h"

#include "call/same_device.h"
#include "call/signature.h"
#include "module.h"
#include "python/callbacks.h"
#include "python/exceptions.h"
#include "python/records.h"
#include "python/threads.h"
#include "tensor/read_descriptor.h"
#include "tensor/read_tensor.h"
#include "values/py_value.h"

#include "select/coerced_call.h"

static bool is_numpy_bool(PyObject *object)
{
    const char *type = Py_TYPE(object)->tp_name;
    return strcmp(type, "numpy.bool") == 0 || strcmp(type, "numpy.bool_") == 0;
}

/* Reads a numpy float whose class does not derive from float, such as float32. Returns 0, or -1 with an exception raised. */
static int read_numpy_float(PyObject *object, nj_value *value)
{
    PyObject *number = PyNumber_Float(object);
    if (number == NULL) {
        return -1;
    }
    *value = (nj_value){.tag = NJ_TAG_OPAQUE, .bits = nj_double_bits(PyFloat_AS_DOUBLE(number))};
    Py_DECREF(number);
    return 0;
}

/* Reads a number of another class: numpy's floats and bool, and objects with __index__. Leaves other objects unknown. */
static int read_number(PyObject *object, nj_value *value)
{
    if (PyFloat_Check(object)) {
        *value = (nj_value){.tag = NJ_TAG_OPAQUE, .bits = nj_double_bits(PyFloat_AS_DOUBLE(object))};
        return 0;
    }
    if (is_numpy_bool(object)) {
        int truth = PyObject_IsTrue(object);
        *value = (nj_value){.tag = NJ_TAG_BOOL, .bits = truth};
        return truth < 0 ? -1 : 0;
    }
    if (!PyIndex_Check(object)) {
        return strncmp(Py_TYPE(object)->tp_name, "numpy.float", 11) == 0 ? read_numpy_float(object, value) : 0;
    }
    PyObject *number = PyNumber_Index(object);
    if (number == NULL) { /* an array of several elements has an __index__ that raises */
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    py_read_int(number, value);
    Py_DECREF(number);
    return 0;
}

static int classify_value(const py_signature *signature, Py_ssize_t at, PyObject *object, bool host_too, py_call *call,
                          nj_value *value);

/* Classifies a tuple's members into `call->leaves`. */
static int classify_tuple(const py_signature *signature, Py_ssize_t at, PyObject *tuple, bool host_too, py_call *call,
                          nj_value *value)
{
    uint16_t start = call->leaf_count;
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (call->leaf_count == NJ_LEAVES_MAX) {
            py_refuse(signature->kernel, signature->names[at], PyUnicode_FromString("more"), NJ_LEAVES_RULE, NJ_LEAVES_MAX);
            return -1;
        }
        nj_value *leaf = &call->leaves[call->leaf_count++];
        if (classify_value(signature, at, PyTuple_GET_ITEM(tuple, i), host_too, call, leaf) < 0) {
            return -1;
        }
    }
    *value = (nj_value){.tag = NJ_TAG_TUPLE,
                        .bits = nj_tuple(start, (uint16_t)(call->leaf_count - start), (uint16_t)count)};
    return 0;
}

static int classify_descriptor(const py_signature *signature, Py_ssize_t at, PyObject *object, bool host_too,
                               py_call *call, nj_value *value)
{
    if (call->descriptor_count == NJ_DESCRIPTORS_MAX) {
        py_refuse(signature->kernel, signature->names[at], PyUnicode_FromString("more"),
                  NJ_DESCRIPTORS_RULE, NJ_DESCRIPTORS_MAX);
        return -1;
    }
    py_tensor base;
    nj_descriptor *descriptor = &call->descriptors[call->descriptor_count];
    if (py_read_descriptor(object, call->seen, signature->kernel, signature->names[at], descriptor, &base) < 0) {
        return -1;
    }
    *value = (nj_value){.tag = NJ_TAG_DESCRIPTOR, .bits = call->descriptor_count++};
    return py_join_device(signature, at, object, &base, host_too, call, &descriptor->base);
}

/* Asks the kernel for the tag and the bits of a constexpr whose type C does not know. */
static int ask_constexpr(PyObject *owner, PyObject *object, nj_value *value)
{
    PyObject *pair = PyObject_CallMethodOneArg(owner, py_asked._constexpr_key, object);
    int tag = NJ_TAG_UNKNOWN;
    long long bits = 0;
    int status = pair != NULL && PyArg_ParseTuple(pair, "iL", &tag, &bits) ? 0 : -1;
    *value = (nj_value){.tag = (uint8_t)tag, .bits = bits};
    Py_XDECREF(pair);
    return status;
}

/* True for a `triton.language.constexpr`. Compares the class's name, since Triton may not be installed. */
static bool is_triton_constexpr(PyObject *object)
{
    return strcmp(Py_TYPE(object)->tp_name, "constexpr") == 0 && PyObject_HasAttr(object, py_asked.value);
}

/* Classifies a constant that a variant may be compiled with: a string, a dtype or a function. Not inline: few arguments are
 * constants. */
static __attribute__((noinline)) int classify_constant(PyObject *owner, PyObject *object, nj_value *value)
{
    if (ask_constexpr(owner, object, value) < 0) {
        return -1;
    }
    value->tag = nj_is_id(value) ? NJ_TAG_CONSTANT : value->tag;
    return 0;
}

/* Classifies the value that a `triton.language.constexpr` wraps. */
static int classify_wrapped(const py_signature *signature, Py_ssize_t at, PyObject *object, bool host_too, py_call *call,
                            nj_value *value)
{
    PyObject *held = PyObject_GetAttr(object, py_asked.value);
    if (held == NULL) {
        return -1;
    }
    /* as a whole, since `ask_again` could not find a tuple's members in the wrapper */
    int status = PyTuple_Check(held) || is_triton_constexpr(held)
                     ? classify_constant(call->owner, object, value)
                     : classify_value(signature, at, held, host_too, call, value);
    Py_DECREF(held);
    return status;
}

/* Classifies an object that is no tensor: a wrapped constexpr, a number of another class, or a constant. Not inline: few arguments get
 * here. */
static __attribute__((noinline)) int classify_rare(const py_signature *signature, Py_ssize_t at, PyObject *object,
                                                   bool host_too, py_call *call, nj_value *value)
{
    if (is_triton_constexpr(object)) {
        return classify_wrapped(signature, at, object, host_too, call, value);
    }
    if (read_number(object, value) < 0) {
        return -1;
    }
    return value->tag == NJ_TAG_UNKNOWN ? classify_constant(call->owner, object, value) : 0;
}

/* Classifies an object whose exact type is not int, float, bool or None. */
static int classify_other(const py_signature *signature, Py_ssize_t at, PyObject *object, bool host_too, py_call *call,
                          nj_value *value)
{
    if (PyLong_Check(object)) {
        py_read_int(object, value);
        return 0;
    }
    if (PyTuple_Check(object)) {
        if (Py_EnterRecursiveCall(" in the tuples of a kernel's arguments")) {
            return -1;
        }
        int status = classify_tuple(signature, at, object, host_too, call, value);
        Py_LeaveRecursiveCall();
        return status;
    }
    if (PyUnicode_Check(object)) {
        return classify_constant(call->owner, object, value);
    }
    py_tensor tensor;
    int status = py_read_tensor(object, call->seen, signature->kernel, signature->names[at], &tensor);
    if (status > 0) {
        *value = tensor.value;
        return py_join_device(signature, at, object, &tensor, host_too, call, value);
    }
    if (status == 0 && tensor.kind == PY_KIND_DESCRIPTOR) {
        return classify_descriptor(signature, at, object, host_too, call, value);
    }
    return status < 0 ? -1 : classify_rare(signature, at, object, host_too, call, value);
}

/* Inline in the loop over a call's arguments, since most arguments end here. */
static inline __attribute__((always_inline)) int classify_common(const py_signature *signature, Py_ssize_t at, PyObject *object,
                                                                 bool host_too, py_call *call, nj_value *value)
{
    *value = (nj_value){.tag = NJ_TAG_UNKNOWN};
    if (PyLong_CheckExact(object)) {
        py_read_int(object, value);
    } else if (object == Py_None) {
        value->tag = NJ_TAG_NONE;
    } else if (PyBool_Check(object)) {
        *value = (nj_value){.tag = NJ_TAG_BOOL, .bits = object == Py_True};
    } else if (PyFloat_CheckExact(object)) {
        *value = (nj_value){.tag = NJ_TAG_OPAQUE, .bits = nj_double_bits(PyFloat_AS_DOUBLE(object))};
    } else {
        return classify_other(signature, at, object, host_too, call, value);
    }
    return 0;
}

static int classify_value(const py_signature *signature, Py_ssize_t at, PyObject *object, bool host_too, py_call *call,
                          nj_value *value)
{
    return classify_common(signature, at, object, host_too, call, value);
}

static int classify_constexpr(const py_signature *signature, PyObject *owner, PyObject *object, nj_value *value)
{
    *value = (nj_value){.tag = NJ_TAG_MISSING};
    if (object == NULL) {
        return 0;
    }
    if (PyLong_CheckExact(object)) {
        py_read_int(object, value);
        if (value->tag == NJ_TAG_UINT) {
            value->tag = NJ_TAG_UNKNOWN;
        }
    } else if (PyBool_Check(object)) {
        *value = (nj_value){.tag = NJ_TAG_BOOL, .bits = object == Py_True};
    } else if (object == Py_None) {
        value->tag = NJ_TAG_NONE;
    } else if (PyFloat_CheckExact(object)) {
        *value = (nj_value){.tag = NJ_TAG_OPAQUE, .bits = nj_opaque_double(PyFloat_AS_DOUBLE(object))};
    } else if (PyUnicode_CheckExact(object)) {
        return py_ids_string(signature->ids, object, value);
    } else {
        return ask_constexpr(owner, object, value);
    }
    return 0;
}

/* Options count as constexprs. */
static inline bool is_constexpr(const py_signature *signature, Py_ssize_t at)
{
    return at >= signature->param_count || signature->constexprs[at];
}

int py_classify(const py_signature *signature, PyObject *owner, bool host_too, py_call *call)
{
    call->owner = owner;
    call->device = PY_DEVICE_ANY;
    call->device_from = -1;
    call->api = NULL;
    call->stream = NULL;
    call->origins = 0;
    call->leaf_count = 0;
    call->descriptor_count = 0;
    for (Py_ssize_t i = 0; i < signature->count; i++) {
        int status = is_constexpr(signature, i) ? classify_constexpr(signature, owner, call->objects[i], &call->values[i])
                                                : classify_common(signature, i, call->objects[i], host_too, call,
                                                                  &call->values[i]);
        if (status < 0) {
            return -1;
        }
    }
    return 0;
}

/* Looks up the unknown constants of an argument again, including those in tuples. */
static int ask_again(py_call *call, PyObject *object, nj_value *value)
{
    if (value->tag == NJ_TAG_UNKNOWN) {
        return classify_constant(call->owner, object, value);
    }
    nj_value *leaf = value->tag == NJ_TAG_TUPLE ? &call->leaves[nj_tuple_start(value)] : NULL;
    for (Py_ssize_t i = 0; leaf != NULL && i < PyTuple_GET_SIZE(object); i++) {
        if (ask_again(call, PyTuple_GET_ITEM(object, i), leaf) < 0) {
            return -1;
        }
        leaf += leaf->tag == NJ_TAG_TUPLE ? 1 + nj_tuple_entries(leaf) : 1;
    }
    return 0;
}

int py_classify_again(const py_signature *signature, PyObject *owner, py_call *call)
{
    for (Py_ssize_t i = 0; i < signature->count; i++) {
        int status = is_constexpr(signature, i) ? classify_constexpr(signature, owner, call->objects[i], &call->values[i])
                                                : ask_again(call, call->objects[i], &call->values[i]);
        if (status < 0) {
            return -1;
        }
    }
    return 0;
}
