/* The engine's ids of strings, dtypes and functions, as a Python object: one for each kernel. */
#ifndef NOJIT_PY_CONSTANT_IDS_H
#define NOJIT_PY_CONSTANT_IDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "select/constant_ids.h"

typedef struct {
    PyObject_HEAD
    nj_ids *ids;
    PyObject *strings; /* dict: bits of strings that were found before, by the string */
} py_ids;

extern PyTypeObject *py_ids_type;

/* What a string stands for that is passed as a constexpr: 0, or -1 with an exception raised. */
int py_ids_string(py_ids *self, PyObject *string, nj_value *value);

#endif
