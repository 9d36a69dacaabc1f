/* Kernels as Python calls them. */
#ifndef NOJIT_DISPATCHER_H
#define NOJIT_DISPATCHER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Makes the types; once, at import. */
int nj_dispatcher_init(PyObject *module);

#endif
