/* Finds the plan of a call in the cache, or has Python make one for the variant that serves the call. */
#ifndef NOJIT_FIND_PLAN_H
#define NOJIT_FIND_PLAN_H

#include "kernel/dispatcher.h"

/* Returns the plan of a classified call as a new reference; NULL with an exception raised. Sets `call->device` to the current device
 * if no tensor has one. */
py_plan *py_find_plan(py_dispatcher *self, py_call *call);

#endif
