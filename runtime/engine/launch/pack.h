/* Converts arguments to the bytes that the compiled kernel takes. */
#ifndef NOJIT_LAUNCH_PACK_H
#define NOJIT_LAUNCH_PACK_H

#include "launch/launch.h"

/* Fills `params` with pointers into `arguments` and `launch`; false with `error` filled. */
NJ_FOR_BINDING bool nj_launch_pack(const nj_runnable *runnable, const nj_arguments *arguments, nj_launch_state *launch, nj_error *error);

/* Fills the param of a slot that takes a part of a descriptor; false with `error` filled. */
bool nj_launch_pack_part(const nj_runnable *runnable, size_t slot, const nj_descriptor *descriptor, nj_launch_state *launch, nj_error *error);

#endif
