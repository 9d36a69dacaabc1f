/* `_core.Ids`: a kernel's ids of strings, dtypes and functions. One per kernel. */
#ifndef NOJIT_PY_CONSTANT_IDS_H
#define NOJIT_PY_CONSTANT_IDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "select/constant_ids.h"

typedef struct {
    PyObject_HEAD
    nj_ids *ids;
    PyObject *strings; /* dict: cached bits by string; owned */
} py_ids;

extern PyTypeObject *py_ids_type;

/* Gets the engine's value of a string that is passed as a constexpr. Returns 0, or -1 with an exception raised. */
int py_ids_string(py_ids *self, PyObject *string, nj_value *value);

#endif
