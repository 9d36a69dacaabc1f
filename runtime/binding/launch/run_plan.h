/* Launches a plan: the engine launches, and this code releases the GIL and calls hooks and allocators. */
#ifndef NOJIT_RUN_PLAN_H
#define NOJIT_RUN_PLAN_H

#include "call/bound_call.h"
#include "plan/py_plan.h"

/* Packs the arguments of a launch without enqueuing it. Returns 0, or -1 with an exception raised. */
int py_plan_pack(const py_plan *plan, const py_signature *signature, const py_call *call, nj_launch_state *launch);

/* Enqueues the kernel. Returns 0, or -1 with an exception raised. Launches nothing if a size in `grid` is 0. */
int py_run_plan(const py_plan *plan, const py_signature *signature, const py_call *call, const int64_t grid[3]);

#endif
