/* What a call says, as Python objects for the slow path. */
#ifndef NOJIT_CALL_FACTS_H
#define NOJIT_CALL_FACTS_H

#include "call/bound_call.h"

/* (arguments, constexprs, options): what the call says, as the slow path takes it. NULL with an exception raised. */
PyObject *py_call_facts(const py_signature *signature, const py_call *call);

#endif
