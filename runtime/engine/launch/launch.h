/* Enqueues launches. */
#ifndef NOJIT_LAUNCH_LAUNCH_H
#define NOJIT_LAUNCH_LAUNCH_H

#include "launch/runnable.h"

/* The state of one launch, other than the runnable and the arguments. It lives on the stack. */
typedef struct {
    unsigned int grid[3]; /* in CTAs */
    CUstream stream;
    uint64_t scratch_address[2]; /* addresses of the global and the profile scratch */
    void *params[NJ_ARGUMENTS_MAX];
    uint64_t cells[NJ_ARGUMENTS_MAX]; /* bytes of params that differ from the argument's bits, such as narrower floats */
    CUtensorMap maps[NJ_DESCRIPTORS_MAX];
} nj_launch_state;

/* Returns the kernel param that holds a scratch address; `source` is NJ_SOURCE_GLOBAL_SCRATCH or NJ_SOURCE_PROFILE_SCRATCH. */
static inline void *nj_launch_scratch_param(nj_launch_state *launch, int source)
{
    return &launch->scratch_address[NJ_SOURCE_GLOBAL_SCRATCH - source];
}

/* True if the grid has no blocks. Such a launch enqueues nothing. */
static inline bool nj_launch_is_empty(const nj_launch_state *launch)
{
    return launch->grid[0] == 0 || launch->grid[1] == 0 || launch->grid[2] == 0;
}

/* Computes the bytes of scratch memory for the whole grid; false if the aligned size overflows. */
NJ_FOR_BINDING bool nj_launch_scratch(const nj_scratch *scratch, const nj_launch_state *launch, int64_t *bytes);

/* Enqueues the kernel with packed params; false with `error` filled. Blocks while the driver's queue is full. */
NJ_FOR_BINDING bool nj_launch_enqueue(const nj_runnable *runnable, nj_launch_state *launch, nj_error *error);

/* Packs the arguments and enqueues the kernel; false with `error` filled. */
NJ_FOR_BINDING bool nj_launch_run(const nj_runnable *runnable, const nj_arguments *arguments, nj_launch_state *launch, nj_error *error);

#endif
