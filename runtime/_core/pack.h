/* The parameters of a launch: each argument turned into the bytes that the compiled kernel takes. */
#ifndef NOJIT_PACK_H
#define NOJIT_PACK_H

#include "plan.h"

/* What one launch needs beside the plan and the call; lives on the stack. */
typedef struct {
    unsigned int grid[3];
    CUstream stream;
    uint64_t scratch_address[2]; /* global, profile */
    void *params[NJ_ARGUMENTS_MAX];
    uint64_t cells[NJ_ARGUMENTS_MAX]; /* the bytes of the params that are not passed as they came */
    CUtensorMap maps[NJ_DESCRIPTORS_MAX];
} nj_launch;

/* Fills `params`: 0, or -1 with an exception raised. */
int nj_pack(nj_plan *plan, const nj_signature *signature, nj_call *call, nj_launch *launch);

#endif
