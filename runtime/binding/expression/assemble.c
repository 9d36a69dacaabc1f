#include "expression/assemble.h"

#include "python/records.h"
#include "expr/infix.h"
#include "expr/postfix.h"

typedef struct {
    PyObject *values, *slots; /* dicts: constants, and the slot of what is none, by name */
    PyObject *constant;       /* called with a constant that is neither int, bool nor None: its instruction */
} py_names;

/* Asks Python for the instruction that pushes a constant; false with an exception raised. */
static bool ask_constant(const py_names *names, PyObject *value, nj_instruction *push)
{
    PyObject *pair = PyObject_CallOneArg(names->constant, value);
    long long operand;
    bool right = py_is_tuple(pair, "an instruction: (op, operand)") && PyArg_ParseTuple(pair, "bL", &push->op, &operand);
    Py_XDECREF(pair);
    push->operand = right ? operand : 0;
    return right;
}

static bool push_constant(const py_names *names, PyObject *value, nj_instruction *push)
{
    int overflow = 0;
    if (value == Py_None) {
        push->op = NJ_OP_CONST_NONE;
    } else if (PyBool_Check(value)) {
        *push = (nj_instruction){.op = NJ_OP_CONST_BOOL, .operand = value == Py_True};
    } else if (PyLong_CheckExact(value)) {
        *push = (nj_instruction){.op = NJ_OP_CONST_INT, .operand = PyLong_AsLongLongAndOverflow(value, &overflow)};
    } else {
        return ask_constant(names, value, push);
    }
    return overflow == 0;
}

/* Takes a string out of its quotes and asks for its instruction. */
static bool push_string(const py_names *names, nj_span word, nj_instruction *push)
{
    bool whole = word.size > 1 && word.at[word.size - 1] == *word.at;
    PyObject *string = !whole ? NULL : PyUnicode_FromStringAndSize((const char *)word.at + 1, (Py_ssize_t)word.size - 2);
    bool done = string != NULL && ask_constant(names, string, push);
    Py_XDECREF(string);
    return done;
}

static bool find_name(void *context, nj_span word, nj_instruction *push)
{
    const py_names *names = context;
    if (*word.at == '\'' || *word.at == '"') {
        return push_string(names, word, push);
    }
    PyObject *name = PyUnicode_FromStringAndSize((const char *)word.at, (Py_ssize_t)word.size);
    PyObject *value = name == NULL ? NULL : PyDict_GetItemWithError(names->values, name);
    PyObject *slot = name == NULL || value != NULL || PyErr_Occurred() ? NULL : PyDict_GetItemWithError(names->slots, name);
    Py_XDECREF(name);
    if (value != NULL) {
        return push_constant(names, value, push);
    }
    *push = (nj_instruction){.op = NJ_OP_LOAD, .operand = slot == NULL ? -1 : PyLong_AsLongLong(slot)};
    return slot != NULL;
}

PyObject *py_assemble_words(nj_span words, PyObject *values, PyObject *slots, PyObject *constant)
{
    py_names names = {values, slots, constant};
    nj_assembly made;
    bool whole = nj_assemble(words, find_name, &names, SIZE_MAX, &made);
    if (PyErr_Occurred()) {
        return NULL;
    }
    return PyBytes_FromStringAndSize((const char *)made.code, whole ? (Py_ssize_t)(made.length * sizeof *made.code) : 0);
}

PyObject *py_assemble_text(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *text;
    Py_ssize_t size;
    PyObject *values, *slots, *constant;
    if (!PyArg_ParseTuple(args, "s#O!O!O:assemble", &text, &size, &PyDict_Type, &values, &PyDict_Type, &slots, &constant)) {
        return NULL;
    }
    return py_assemble_words((nj_span){(const unsigned char *)text, (size_t)size}, values, slots, constant);
}

PyObject *py_words_of(PyObject *text)
{
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    char *words = bytes == NULL ? NULL : PyMem_Malloc(nj_postfix_room((size_t)size));
    if (words == NULL) {
        return bytes == NULL ? NULL : PyErr_NoMemory();
    }
    size_t length;
    nj_syntax_error error;
    bool whole = nj_postfix((nj_span){(const unsigned char *)bytes, (size_t)size}, words, &length, &error);
    PyObject *found = whole ? PyUnicode_FromStringAndSize(words, (Py_ssize_t)length)
                            : Py_BuildValue("(sn)", error.what, (Py_ssize_t)error.column);
    PyMem_Free(words);
    return found;
}

PyObject *py_postfix_of(PyObject *Py_UNUSED(module), PyObject *text)
{
    if (!PyUnicode_Check(text)) {
        return PyErr_Format(PyExc_TypeError, "expected a str, got %.100s", Py_TYPE(text)->tp_name);
    }
    return py_words_of(text);
}
