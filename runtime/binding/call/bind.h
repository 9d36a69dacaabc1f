/* Binds the objects of a call to the kernel's params, options and stream. */
#ifndef NOJIT_BIND_H
#define NOJIT_BIND_H

#include "call/bound_call.h"

/* Fills `call->objects`. Returns 0, or -1 with an exception raised. `fixed` may be NULL. `owner` is the kernel, which checks keywords
 * that the signature lacks. */
int py_bind(const py_signature *signature, PyObject *owner, const py_fixed *fixed, PyObject *const *arguments,
            Py_ssize_t positional, PyObject *keywords, py_call *call);

/* Returns the index of a name in `py_call.objects`; -1 if the kernel has no such name. Searches from index `expected` on. */
Py_ssize_t py_place_of(const py_signature *signature, PyObject *name, Py_ssize_t expected);

/* Asks the kernel about an option that the signature lacks. Returns 0 if its value is the built one, or -1 with an exception raised. */
int py_check_option(PyObject *owner, PyObject *name, PyObject *value);

#endif
