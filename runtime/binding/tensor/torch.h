/* What torch says, where the process has it: nothing here imports it. */
#ifndef NOJIT_TORCH_H
#define NOJIT_TORCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* An attribute of torch, new; NULL without an exception where torch is not loaded, or not that far yet. */
PyObject *py_of_torch(PyObject *name);

/* Whether an object is a tensor of torch: 1, 0, or -1 with an exception raised. */
int py_is_torch(PyObject *object);

#endif
