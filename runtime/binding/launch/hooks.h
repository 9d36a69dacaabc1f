/* Hooks: callables that run around every launch, for profilers. */
#ifndef NOJIT_HOOKS_H
#define NOJIT_HOOKS_H

#include "call/bound_call.h"
#include "plan/py_plan.h"

/* True if hooks are set. Without hooks, this check is their only cost. */
extern atomic_bool py_hooked;

/* Calls `enter(kernel, plan, grid, stream)`. Returns a token for `py_hooks_leave` as a new reference; NULL with an exception raised. */
PyObject *py_hooks_enter(const py_plan *plan, const py_signature *signature, const nj_launch_state *launch);

/* Calls `leave(entered)`, and steals the token. Returns 0, or -1 with an exception raised. A pending exception stays. */
int py_hooks_leave(PyObject *entered);

#endif
