#include "tensor/overlap.h"

#include <stddef.h>
#include <stdint.h>

static uintptr_t address_of(const DLTensor *tensor)
{
    return (uintptr_t)tensor->data + tensor->byte_offset;
}

/* Computes the lowest and the highest offset of a tensor from its first element, in elements. Returns 1, 0 if it has no elements, or -1
 * if an offset overflows. */
static int reach_of(const DLTensor *tensor, int64_t *low, int64_t *high)
{
    int64_t contiguous = 1;
    bool beyond = tensor->ndim > 0 && tensor->shape == NULL;
    *low = *high = 0;
    for (int32_t i = beyond ? 0 : tensor->ndim; i-- > 0;) {
        int64_t size = tensor->shape[i], reach = 0;
        if (size == 0) {
            return 0;
        }
        /* in DLPack, NULL strides mean contiguous */
        int64_t stride = tensor->strides == NULL ? contiguous : tensor->strides[i];
        beyond |= size < 0 || __builtin_mul_overflow(size - 1, stride, &reach);
        int64_t *end = reach < 0 ? low : high;
        beyond |= __builtin_add_overflow(*end, reach, end) ||
                  (tensor->strides == NULL && __builtin_mul_overflow(contiguous, size, &contiguous));
    }
    return beyond ? -1 : 1;
}

int py_extent_of(const DLTensor *tensor, py_extent *extent)
{
    int64_t low, high, bits = (int64_t)tensor->dtype.bits * tensor->dtype.lanes;
    int found = reach_of(tensor, &low, &high);
    bool beyond = found > 0 && (__builtin_mul_overflow(low, bits, &low) || __builtin_sub_overflow(low, 7, &low) ||
                                __builtin_add_overflow(high, 1, &high) ||
                                __builtin_mul_overflow(high, bits, &high) || __builtin_add_overflow(high, 7, &high));
    uintptr_t address = address_of(tensor);
    *extent = (py_extent){address, address};
    if (found <= 0 || beyond) {
        return beyond ? -1 : found;
    }
    beyond = __builtin_add_overflow(address, low / 8, &extent->first) || __builtin_add_overflow(address, high / 8, &extent->end);
    return beyond ? -1 : 1;
}

bool py_lies_apart(const DLTensor *one, const DLTensor *other)
{
    py_extent a, b;
    int of_one = py_extent_of(one, &a), of_other = py_extent_of(other, &b);
    if (of_one == 0 || of_other == 0) {
        return true;
    }
    return of_one > 0 && of_other > 0 && (a.end <= b.first || b.end <= a.first);
}

bool py_is_same_view(const DLTensor *one, const DLTensor *other)
{
    if (address_of(one) != address_of(other) || one->ndim != other->ndim || one->dtype.code != other->dtype.code ||
        one->dtype.bits != other->dtype.bits || one->dtype.lanes != other->dtype.lanes ||
        (one->strides == NULL) != (other->strides == NULL)) {
        return false;
    }
    for (int32_t i = 0; i < one->ndim; i++) {
        if (one->shape[i] != other->shape[i] || (one->strides != NULL && one->strides[i] != other->strides[i])) {
            return false;
        }
    }
    return true;
}
