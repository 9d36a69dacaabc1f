/* Selects the variant that serves a call. Every function needs the GIL. */
#ifndef NOJIT_SELECT_ROW_H
#define NOJIT_SELECT_ROW_H

#include "plan/py_spec.h"

enum {
    PY_UNSERVED_ROW = -1, /* no variant serves the call, or the kernel cannot take it: Python words the error */
    PY_FAILED_ROW = -2,   /* an exception is raised */
};

/* Returns the row of the spec's table that serves a call, or one of the above. */
Py_ssize_t py_select_row(PyObject *owner, const py_signature *signature, const py_spec *spec, const py_call *call);

/* Runs pending signal handlers. True, with an exception raised, if one of them raises, as Ctrl-C does. */
bool py_is_interrupted(void *context);

#endif
