/* The handle of a plan: a variant on a device, ready to launch. */
#ifndef NOJIT_API_PLAN_H
#define NOJIT_API_PLAN_H

#include "api/kernel.h"
#include "launch/launch.h"
#include "launch/leaf_values.h"

struct nj_plan {
    nj_plan *next; /* the plan of the same row on another device */
    nj_kernel *kernel;
    nj_runnable it;
    size_t row;
    nj_leaf_values values;
    char *symbol;
    uint32_t num_warps, registers;
};

/* Returns the plan of a row on a device; the first call makes it. NULL with `error` filled. */
nj_plan *nj_plan_of(nj_kernel *kernel, size_t row, int device, nj_error *error);

/* Frees a plan that is in no list; NULL is fine. */
void nj_plan_free(nj_plan *plan);

/* Computes the bundle's grid from the values of a call. False with `error` filled if the bundle has no grid or a dimension is not an
 * int. */
bool nj_plan_grid(const nj_plan *plan, const nj_value *values, int64_t grid[3], nj_error *error);

/* Sets the grid and the stream of a launch; false with `error` filled. */
bool nj_plan_begin(const nj_plan *plan, const int64_t grid[3], nj_stream stream, nj_launch_state *launch, nj_error *error);

/* Enqueues a packed launch, with scratch memory if the plan needs any; false with `error` filled. */
bool nj_plan_enqueue(const nj_plan *plan, nj_launch_state *launch, nj_error *error);

/* Enqueues a packed launch of a plan that needs scratch memory, from nj_options.allocate or else cuMemAllocAsync; false with `error`
 * filled. */
bool nj_plan_enqueue_with_scratch(const nj_plan *plan, nj_launch_state *launch, nj_error *error);

#endif
