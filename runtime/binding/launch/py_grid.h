/* Reads a caller's grid: ints or a callable. The engine computes a bundle's grid: `nj_runnable_grid`. */
#ifndef NOJIT_PY_GRID_H
#define NOJIT_PY_GRID_H

#include "call/bound_call.h"
#include "plan/py_plan.h"

/* Error texts: for a grid of the wrong form, and for a missing one. */
#define PY_GRID_RULE "expected a grid of 1 to 3 ints, or a callable"
#define PY_GRIDLESS "the bundle has no grid for this kernel: expected kernel[grid](...)"

/* Reads a tuple or list of one to three ints. Returns 0, or -1 with an exception raised. Leaves limits of sizes to the launch. */
int py_parse_grid(const py_signature *signature, PyObject *object, int64_t grid[3]);

/* Calls `callable(meta)` and reads the grid that it returns. `meta` is a dict of the variant's constexprs and options and the call's
 * arguments. Returns 0, or -1 with an exception raised. */
int py_call_grid(const py_signature *signature, const py_plan *plan, const py_call *call, PyObject *callable,
                 int64_t grid[3]);

#endif
