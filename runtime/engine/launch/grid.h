/* The grid of a launch: computed where the bundle gives it, and checked whoever gives it. */
#ifndef NOJIT_LAUNCH_GRID_H
#define NOJIT_LAUNCH_GRID_H

#include "launch/launch.h"

/* Copies the programs of the bundle's grid; false with `error` filled. */
bool nj_runnable_read_grid(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error);

/* Computes the grid that the bundle gives: -1, or the dimension that comes to no int. */
NJ_FOR_BINDING int nj_runnable_grid(const nj_runnable *runnable, const nj_value *values, int64_t grid[3]);

/* Takes a grid, in clusters, for a launch; false with `error` filled: it is below 0, or larger than the driver's limit. */
NJ_FOR_BINDING bool nj_launch_size(const nj_runnable *runnable, const int64_t grid[3], nj_launch_state *launch, nj_error *error);

#endif
