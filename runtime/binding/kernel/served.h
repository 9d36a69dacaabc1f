/* `_core.Served`: kernels that replace functions of Triton. */
#ifndef NOJIT_SERVED_H
#define NOJIT_SERVED_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

bool py_is_served(PyObject *object);

#endif
