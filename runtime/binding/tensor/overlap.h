/* Tests whether tensors share memory. */
#ifndef NOJIT_OVERLAP_H
#define NOJIT_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/dlpack_exchange.h"

/* Address range of a tensor: `end` is one past the last byte. */
typedef struct {
    uintptr_t first, end;
} py_extent;

/* Computes the address range of a tensor. Returns 1, 0 if it has no elements, or -1 if the range exceeds the address space. */
int py_extent_of(const DLTensor *tensor, py_extent *extent);

/* True if the address ranges of two tensors do not overlap. Conservative: false for interleaved tensors that share no element, and for
 * a tensor that exceeds the address space. */
bool py_lies_apart(const DLTensor *one, const DLTensor *other);

/* True if both tensors have the same address, dtype, shape and strides. */
bool py_is_same_view(const DLTensor *one, const DLTensor *other);

#endif
