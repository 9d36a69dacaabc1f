#include "python/tuples.h"

bool py_is_tuple(PyObject *object, const char *what)
{
    bool is = object != NULL && PyTuple_Check(object);
    if (!is && object != NULL) {
        PyErr_Format(PyExc_TypeError, "expected %s, got %.200s", what, Py_TYPE(object)->tp_name);
    }
    return is;
}

PyObject *py_tuple(size_t count, py_item item, void *context, const void *items)
{
    PyObject *made = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; made != NULL && i < count; i++) {
        PyObject *object = item(context, items, i);
        if (object == NULL) {
            Py_CLEAR(made);
            break;
        }
        PyTuple_SET_ITEM(made, (Py_ssize_t)i, object);
    }
    return made;
}

static PyObject *number_of(void *Py_UNUSED(context), const void *numbers, size_t number)
{
    return PyLong_FromUnsignedLong(((const uint32_t *)numbers)[number]);
}

PyObject *py_tuple_of_numbers(const uint32_t *numbers, size_t count)
{
    return py_tuple(count, number_of, NULL, numbers);
}

bool py_append(PyObject *list, PyObject *object)
{
    bool added = object != NULL && PyList_Append(list, object) == 0;
    Py_XDECREF(object);
    return added;
}

PyObject *py_ended_list(PyObject *list, bool whole)
{
    PyObject *made = whole ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return made;
}
