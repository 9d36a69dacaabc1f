/* Classification: what each argument of a call is. */
#ifndef NOJIT_CLASSIFY_H
#define NOJIT_CLASSIFY_H

#include "call/bound_call.h"

/* Fills the rest: 0, or -1 with an exception raised. Tensors in host memory are refused unless `host_too`. */
int py_classify(const py_signature *signature, PyObject *owner, bool host_too, py_call *call);

/* Reads constexprs, options and constants among the arguments anew: their values may have been interned since. */
int py_classify_again(const py_signature *signature, PyObject *owner, py_call *call);

#endif
