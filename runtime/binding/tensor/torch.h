/* Reads attributes of torch if the process has imported it. Never imports torch. */
#ifndef NOJIT_TORCH_H
#define NOJIT_TORCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Returns an attribute of torch as a new reference; NULL without an exception if torch is not imported, or is still being imported. */
PyObject *py_of_torch(PyObject *name);

/* Returns 1 if an object is a torch.Tensor, 0 if not, or -1 with an exception raised. */
int py_is_torch(PyObject *object);

#endif
