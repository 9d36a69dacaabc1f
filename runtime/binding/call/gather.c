#include "call/gather.h"

void py_gathered_clear(py_gathered *gathered)
{
    if (gathered->keywords != NULL) {
        Py_XDECREF(gathered->values[gathered->positional + PyTuple_GET_SIZE(gathered->keywords) - 1]);
    }
    Py_XDECREF(gathered->keywords);
    PyMem_Free(gathered->values);
}

int py_gather(const py_signature *signature, PyObject *const *arguments, Py_ssize_t positional,
              PyObject *keywords, py_gathered *gathered)
{
    Py_ssize_t named = keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords);
    Py_ssize_t own = positional < signature->rest ? positional : signature->rest;
    *gathered = (py_gathered){.positional = own, .values = PyMem_Calloc((size_t)(own + named) + 1, sizeof *arguments)};
    PyObject *rest = PyTuple_New(positional - own), *names = PyTuple_New(named + 1);
    if (gathered->values == NULL || rest == NULL || names == NULL) {
        Py_XDECREF(rest);
        Py_XDECREF(names);
        PyMem_Free(gathered->values);
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = own; i < positional; i++) {
        PyTuple_SET_ITEM(rest, i - own, Py_NewRef(arguments[i]));
    }
    memcpy(gathered->values, arguments, (size_t)own * sizeof *arguments);
    memcpy(gathered->values + own, arguments + positional, (size_t)named * sizeof *arguments);
    for (Py_ssize_t i = 0; i < named; i++) {
        PyTuple_SET_ITEM(names, i, Py_NewRef(PyTuple_GET_ITEM(keywords, i)));
    }
    PyTuple_SET_ITEM(names, named, Py_NewRef(signature->names[signature->rest]));
    gathered->values[own + named] = rest;
    gathered->keywords = names;
    return 0;
}
