/* What is called around every launch, for profilers. */
#ifndef NOJIT_HOOKS_H
#define NOJIT_HOOKS_H

#include "call/bound_call.h"
#include "plan/py_plan.h"

/* Whether there are any: nothing else is paid for where there are none. */
extern atomic_bool py_hooked;

/* Calls `enter(kernel, plan, grid, stream)`; what is for `py_hooks_leave` alone, new; NULL with an exception. */
PyObject *py_hooks_enter(const py_plan *plan, const py_signature *signature, const nj_launch_state *launch);

/* Calls `leave(entered)`, and steals it: 0, or -1 with an exception raised. One that is raised already stays. */
int py_hooks_leave(PyObject *entered);

#endif
