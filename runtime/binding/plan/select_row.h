/* Choosing the variant that serves a call of Python's. Every function needs the GIL. */
#ifndef NOJIT_SELECT_ROW_H
#define NOJIT_SELECT_ROW_H

#include "plan/py_spec.h"

enum {
    PY_UNSERVED_ROW = -1, /* nothing serves the call, or the kernel cannot take it: Python says why */
    PY_FAILED_ROW = -2,   /* an exception is raised */
};

/* The row of the spec's table that serves a coerced call, or one of the above. */
Py_ssize_t py_select_row(PyObject *owner, const py_signature *signature, const py_spec *spec, const py_call *call);

/* Whether the caller wants to stop, by a signal say: an exception is raised then. */
bool py_is_interrupted(void *context);

#endif
