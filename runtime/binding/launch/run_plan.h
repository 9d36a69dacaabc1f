/* The launch: what needs Python around what the engine does. */
#ifndef NOJIT_RUN_PLAN_H
#define NOJIT_RUN_PLAN_H

#include "call/bound_call.h"
#include "plan/py_plan.h"

/* Works out what a launch passes, and enqueues nothing: 0, or -1 with an exception raised. */
int py_plan_pack(const py_plan *plan, const py_signature *signature, const py_call *call, nj_launch_state *launch);

/* Enqueues the kernel; 0, or -1 with an exception raised. A zero in `grid` launches nothing. */
int py_run_plan(const py_plan *plan, const py_signature *signature, const py_call *call, const int64_t grid[3]);

#endif
