/* Whether tensors share memory. */
#ifndef NOJIT_OVERLAP_H
#define NOJIT_OVERLAP_H

#include "dlpack.h"

#include <stdbool.h>

/* Whether no byte between the first and the last element of one tensor is between those of the other: they may interleave
 * and still be told that they do not lie apart. */
bool nj_lies_apart(const DLTensor *one, const DLTensor *other);

/* Whether both are the same elements, in the same places. */
bool nj_is_same_view(const DLTensor *one, const DLTensor *other);

#endif
