/* Binding: which object of a call belongs to which param. */
#ifndef NOJIT_BIND_H
#define NOJIT_BIND_H

#include "call/bound_call.h"

/* Fills `objects`: 0, or -1 with ArgumentError raised. `fixed` may be NULL; `owner` is asked to word what takes
 * look-ups. */
int py_bind(const py_signature *signature, PyObject *owner, const py_fixed *fixed, PyObject *const *arguments,
            Py_ssize_t positional, PyObject *keywords, py_call *call);

/* The place of a name in `objects`; -1 if the kernel has no such name. */
Py_ssize_t py_place_of(const py_signature *signature, PyObject *name, Py_ssize_t expected);

/* Has the kernel judge an option that it does not know: 0 if its value is what was built, else -1 with an exception raised. */
int py_check_option(PyObject *owner, PyObject *name, PyObject *value);

#endif
