/* Whether tensors share memory. */
#ifndef NOJIT_OVERLAP_H
#define NOJIT_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/dlpack_exchange.h"

/* From the first byte of a tensor to the one behind its last. */
typedef struct {
    uintptr_t first, end;
} py_extent;

/* Where a tensor lies: 1; 0 if it has no elements, and -1 if no memory is that large. */
int py_extent_of(const DLTensor *tensor, py_extent *extent);

/* Whether no byte between the first and the last element of one tensor is between those of the other: they may interleave
 * and still be told that they do not lie apart, as does what no memory can hold. */
bool py_lies_apart(const DLTensor *one, const DLTensor *other);

/* Whether both are the same elements, in the same places. */
bool py_is_same_view(const DLTensor *one, const DLTensor *other);

#endif
