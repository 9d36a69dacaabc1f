/* The facts of a call as Python objects, for the slow path. */
#ifndef NOJIT_CALL_FACTS_H
#define NOJIT_CALL_FACTS_H

#include "call/bound_call.h"

/* Returns (arguments, constexprs, options), three dicts by name; NULL with an exception raised. */
PyObject *py_call_facts(const py_signature *signature, const py_call *call);

#endif
