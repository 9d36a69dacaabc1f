/* Grids of callers: numbers, or a function. The engine computes those of bundles: `nj_runnable_grid`. */
#ifndef NOJIT_PY_GRID_H
#define NOJIT_PY_GRID_H

#include "call/bound_call.h"
#include "plan/py_plan.h"

/* What a caller's grid has to be, and why a call without one is refused. */
#define PY_GRID_RULE "expected a grid of 1 to 3 ints, or a callable"
#define PY_GRIDLESS "the bundle has no grid for this kernel: expected kernel[grid](...)"

/* Reads a tuple or list of one to three ints: 0, or -1 with ArgumentError raised. Limits are the launch's. */
int py_parse_grid(const py_signature *signature, PyObject *object, int64_t grid[3]);

/* Calls `callable(meta)` with the constexprs and options of the variant, and the arguments, by name. */
int py_call_grid(const py_signature *signature, const py_plan *plan, const py_call *call, PyObject *callable,
                 int64_t grid[3]);

#endif
