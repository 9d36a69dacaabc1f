/* What is called around every launch, for profilers. */
#ifndef NOJIT_HOOKS_H
#define NOJIT_HOOKS_H

#include "plan/py_plan.h"

/* Whether there are any: nothing else is paid for where there are none. */
extern atomic_bool nj_hooked;

/* `set_hooks(enter, leave)`: two callables, or None twice. */
PyObject *nj_set_hooks(PyObject *module, PyObject *args);

/* Calls `enter(kernel, plan, grid, stream)`; what is for `nj_hooks_leave` alone, new; NULL with an exception. */
PyObject *nj_hooks_enter(const nj_plan_object *plan, const nj_signature *signature, const nj_launch_state *launch);

/* Calls `leave(entered)`, and steals it: 0, or -1 with an exception raised. One that is raised already stays. */
int nj_hooks_leave(PyObject *entered);

#endif
