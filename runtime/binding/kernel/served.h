/* Kernels that stand for functions of Triton. */
#ifndef NOJIT_SERVED_H
#define NOJIT_SERVED_H

#include "kernel/launcher.h"

/* Makes the type; once, at import. */
int py_served_init(PyObject *module);

#endif
