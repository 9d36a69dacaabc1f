/* A launch: its kernel enqueued. */
#ifndef NOJIT_LAUNCH_LAUNCH_H
#define NOJIT_LAUNCH_LAUNCH_H

#include "launch/runnable.h"

/* The state of one launch, beside the runnable and the arguments; it lives on the stack. */
typedef struct {
    unsigned int grid[3]; /* in CTAs */
    CUstream stream;
    uint64_t scratch_address[2]; /* global, profile */
    void *params[NJ_ARGUMENTS_MAX];
    uint64_t cells[NJ_ARGUMENTS_MAX]; /* the bytes of the params that are not passed as they came */
    CUtensorMap maps[NJ_DESCRIPTORS_MAX];
} nj_launch_state;

/* Returns the param of scratch memory, for NJ_SOURCE_GLOBAL_SCRATCH or NJ_SOURCE_PROFILE_SCRATCH. */
static inline void *nj_launch_scratch_param(nj_launch_state *launch, int source)
{
    return &launch->scratch_address[NJ_SOURCE_GLOBAL_SCRATCH - source];
}

/* Whether a launch has no blocks, so that nothing is to be enqueued. */
static inline bool nj_launch_is_empty(const nj_launch_state *launch)
{
    return launch->grid[0] == 0 || launch->grid[1] == 0 || launch->grid[2] == 0;
}

/* Bytes of scratch for the whole grid; false if that, aligned, is no size at all. */
NJ_FOR_BINDING bool nj_launch_scratch(const nj_scratch *scratch, const nj_launch_state *launch, int64_t *bytes);

/* Enqueues the kernel with what was packed; false with `error` filled. Waits where the driver's queue is full. */
NJ_FOR_BINDING bool nj_launch_enqueue(const nj_runnable *runnable, nj_launch_state *launch, nj_error *error);

/* Packs and enqueues. */
NJ_FOR_BINDING bool nj_launch_run(const nj_runnable *runnable, const nj_arguments *arguments, nj_launch_state *launch, nj_error *error);

#endif
