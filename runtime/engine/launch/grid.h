/* Computes the grid of a launch by the bundle's expressions, and checks grids from the bundle or the caller. */
#ifndef NOJIT_LAUNCH_GRID_H
#define NOJIT_LAUNCH_GRID_H

#include "launch/launch.h"

/* Copies the programs that compute the bundle's grid; false with `error` filled. */
bool nj_runnable_read_grid(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error);

/* Computes the bundle's grid. Returns -1, or the first dimension whose result is not an int. */
NJ_FOR_BINDING int nj_runnable_grid(const nj_runnable *runnable, const nj_value *values, int64_t grid[3]);

/* Sets the grid of a launch; `grid` counts clusters. False with `error` filled if it is negative or above the driver's limit. */
NJ_FOR_BINDING bool nj_launch_size(const nj_runnable *runnable, const int64_t grid[3], nj_launch_state *launch, nj_error *error);

#endif
