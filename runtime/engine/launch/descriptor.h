/* Tensor descriptors: what every one must be. */
#ifndef NOJIT_LAUNCH_DESCRIPTOR_H
#define NOJIT_LAUNCH_DESCRIPTOR_H

#include "base/error.h"
#include "expr/arguments.h"

enum { NJ_BOX_MAX = 256, NJ_STEP_MAX = 8 };

/* Checks shape and strides. False with `error` filled, of argument `argument`, as in all of these. */
NJ_FOR_BINDING bool nj_descriptor_check_geometry(const nj_descriptor *descriptor, int argument, nj_error *error);

/* Checks what a copy takes, each of so many dimensions; NULL for the block, or for neighbours. */
NJ_FOR_BINDING bool nj_descriptor_check_box(size_t rank, const int64_t *box, const int64_t *steps, int argument, nj_error *error);

/* Checks padding and rounding against the dtype. */
NJ_FOR_BINDING bool nj_descriptor_check_options(const nj_descriptor *descriptor, int argument, nj_error *error);

/* Reads the descriptor of a caller of nojit.h, and checks all of it. */
bool nj_descriptor_take(const nj_tensor_descriptor *from, int argument, nj_descriptor *descriptor, nj_error *error);

#endif
