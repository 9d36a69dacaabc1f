/* Checks tensor descriptors by the rules that hold for every kernel. */
#ifndef NOJIT_LAUNCH_DESCRIPTOR_H
#define NOJIT_LAUNCH_DESCRIPTOR_H

#include "base/error.h"
#include "expr/arguments.h"

enum { NJ_BOX_MAX = 256, NJ_STEP_MAX = 8 };

/* Checks shape and strides. All functions here return false with `error` filled, for the argument `argument`. */
NJ_FOR_BINDING bool nj_descriptor_check_geometry(const nj_descriptor *descriptor, int argument, nj_error *error);

/* Checks the box and the steps of a copy, which have `rank` entries. A NULL `box` means the kernel's block, NULL `steps` mean 1. */
NJ_FOR_BINDING bool nj_descriptor_check_box(size_t rank, const int64_t *box, const int64_t *steps, int argument, nj_error *error);

/* Checks that the padding and rounding options suit the dtype. */
NJ_FOR_BINDING bool nj_descriptor_check_options(const nj_descriptor *descriptor, int argument, nj_error *error);

/* Reads and checks a descriptor that a caller of nojit.h passes. */
bool nj_descriptor_take(const nj_tensor_descriptor *from, int argument, nj_descriptor *descriptor, nj_error *error);

#endif
