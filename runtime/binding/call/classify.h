/* Classifies the arguments of a bound call: converts each object to the engine's tag and value. */
#ifndef NOJIT_CLASSIFY_H
#define NOJIT_CLASSIFY_H

#include "call/bound_call.h"

/* Fills the rest of `call`. Returns 0, or -1 with an exception raised. A tensor in host memory that is not pinned is an error unless
 * `host_too`. */
int py_classify(const py_signature *signature, PyObject *owner, bool host_too, py_call *call);

/* Reads constexprs, options and constant arguments again, since their values may have been interned after the first time. */
int py_classify_again(const py_signature *signature, PyObject *owner, py_call *call);

#endif
