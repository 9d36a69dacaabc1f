/* The handle of a plan: a variant on a device. */
#ifndef NOJIT_API_PLAN_H
#define NOJIT_API_PLAN_H

#include "api/kernel.h"
#include "launch/launch.h"
#include "launch/leaf_values.h"

struct nj_plan {
    nj_plan *next; /* of its row, on another device */
    nj_kernel *kernel;
    nj_runnable it;
    size_t row;
    nj_leaf_values values;
    char *symbol;
    uint32_t num_warps, registers;
};

/* Finds the plan of a row, which is made at the first call; NULL with `error` filled. */
nj_plan *nj_plan_of(nj_kernel *kernel, size_t row, int device, nj_error *error);

/* Frees a plan, which is in no list any more; NULL is fine. */
void nj_plan_free(nj_plan *plan);

/* Computes the grid that the bundle gives, from the values of a call; false with `error` filled if it gives none, or no int. */
bool nj_plan_grid(const nj_plan *plan, const nj_value *values, int64_t grid[3], nj_error *error);

/* Takes the grid and the stream of a launch; false with `error` filled. */
bool nj_plan_begin(const nj_plan *plan, const int64_t grid[3], nj_stream stream, nj_launch_state *launch, nj_error *error);

/* Enqueues with the scratch memory that the plan needs; `launch` is packed but for it. */
bool nj_plan_enqueue(const nj_plan *plan, nj_launch_state *launch, nj_error *error);

/* Does so for a plan that needs scratch memory: by nj_options.allocate, or the driver's. */
bool nj_plan_enqueue_with_scratch(const nj_plan *plan, nj_launch_state *launch, nj_error *error);

#endif
