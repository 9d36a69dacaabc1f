/* The plan of a call: found by its key, or made by Python for the variant that serves the call. */
#ifndef NOJIT_FIND_PLAN_H
#define NOJIT_FIND_PLAN_H

#include "kernel/dispatcher.h"

/* The plan of a classified call, new, and the device if no tensor has one; NULL with an exception raised. */
py_plan *py_find_plan(py_dispatcher *self, py_call *call);

#endif
