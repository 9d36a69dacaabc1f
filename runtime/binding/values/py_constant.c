#include "values/py_constant.h"

#include "python/callbacks.h"
#include "python/utf8.h"

void *py_pile_take(py_pile **pile, size_t size)
{
    py_pile *made = PyMem_Malloc(sizeof *made + size);
    if (made == NULL) {
        return PyErr_NoMemory();
    }
    made->next = *pile;
    *pile = made;
    return made->memory;
}

void py_pile_free(py_pile *pile)
{
    while (pile != NULL) {
        py_pile *next = pile->next;
        PyMem_Free(pile);
        pile = next;
    }
}

bool py_is_simple(PyObject *value)
{
    return value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyUnicode_CheckExact(value);
}

/* Reads an int whose magnitude fits 64 bits; a larger one gets PY_CONSTANT_FOREIGN. */
static int read_int(PyObject *value, nj_constant *constant)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (number == -1 && PyErr_Occurred()) {
        return -1;
    }
    *constant = (nj_constant){.kind = NJ_CONSTANT_INT, .negative = overflow < 0 || (overflow == 0 && number < 0)};
    if (overflow == 0) {
        constant->magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
        return 0;
    }
    PyObject *magnitude = overflow < 0 ? PyNumber_Negative(value) : Py_NewRef(value);
    constant->magnitude = magnitude == NULL ? 0 : PyLong_AsUnsignedLongLong(magnitude);
    Py_XDECREF(magnitude);
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) {
            return -1;
        }
        PyErr_Clear();
        constant->kind = PY_CONSTANT_FOREIGN;
    }
    return 0;
}

static int read_text(PyObject *value, uint8_t kind, nj_constant *constant)
{
    nj_span text;
    bool is_utf8 = py_borrow_text(value, &text);
    *constant = (nj_constant){.kind = kind, .text = text};
    if (!is_utf8) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
            return -1;
        }
        PyErr_Clear();
        *constant = (nj_constant){.kind = PY_CONSTANT_FOREIGN};
    }
    return 0;
}

static int read_tuple(PyObject *value, py_pile **pile, nj_constant *constant)
{
    size_t count = (size_t)PyTuple_GET_SIZE(value);
    nj_constant *items = py_pile_take(pile, (count + 1) * sizeof *items);
    int status = items == NULL || Py_EnterRecursiveCall(" in the tuples of a constexpr") ? -1 : 0;
    if (status < 0) {
        return -1;
    }
    for (size_t i = 0; i < count && status == 0; i++) {
        status = py_constant_from(PyTuple_GET_ITEM(value, i), pile, &items[i]);
    }
    Py_LeaveRecursiveCall();
    *constant = (nj_constant){.kind = NJ_CONSTANT_TUPLE, .count = (uint32_t)count, .items = items};
    return status;
}

/* Reads a DType or a FunctionRef. Compares the class's name, since their module imports the binding. */
static int read_named(PyObject *value, nj_constant *constant)
{
    const char *type = Py_TYPE(value)->tp_name;
    bool dtype = strcmp(type, "DType") == 0;
    if (!dtype && strcmp(type, "FunctionRef") != 0) {
        *constant = (nj_constant){.kind = PY_CONSTANT_FOREIGN};
        return 0;
    }
    PyObject *name = PyObject_GetAttr(value, py_asked.name);
    if (name == NULL) {
        return -1;
    }
    int status = 0;
    if (PyUnicode_Check(name)) {
        status = read_text(name, dtype ? NJ_CONSTANT_DTYPE : NJ_CONSTANT_FUNCTION, constant);
    } else {
        *constant = (nj_constant){.kind = PY_CONSTANT_FOREIGN};
    }
    Py_DECREF(name); /* the record holds it */
    return status;
}

int py_constant_from(PyObject *value, py_pile **pile, nj_constant *constant)
{
    if (value == Py_None) {
        *constant = (nj_constant){.kind = NJ_CONSTANT_NONE};
    } else if (PyBool_Check(value)) {
        *constant = (nj_constant){.kind = NJ_CONSTANT_BOOL, .truth = value == Py_True};
    } else if (PyLong_Check(value)) {
        return read_int(value, constant);
    } else if (PyFloat_Check(value)) {
        *constant = (nj_constant){.kind = NJ_CONSTANT_FLOAT, .number = PyFloat_AS_DOUBLE(value)};
    } else if (PyUnicode_Check(value)) {
        return read_text(value, NJ_CONSTANT_TEXT, constant);
    } else if (PyTuple_Check(value)) {
        return read_tuple(value, pile, constant);
    } else {
        return read_named(value, constant);
    }
    return 0;
}
