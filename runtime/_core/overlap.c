#include "overlap.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uintptr_t first, end; /* equal for a tensor without elements */
} nj_extent;

static uintptr_t address_of(const DLTensor *tensor)
{
    return (uintptr_t)tensor->data + tensor->byte_offset;
}

static nj_extent extent_of(const DLTensor *tensor)
{
    int64_t low = 0, high = 0, contiguous = 1;
    for (int32_t i = tensor->ndim; i-- > 0;) {
        int64_t size = tensor->shape[i];
        if (size == 0) {
            return (nj_extent){0, 0};
        }
        /* without strides a tensor is contiguous */
        int64_t reach = (size - 1) * (tensor->strides == NULL ? contiguous : tensor->strides[i]);
        *(reach < 0 ? &low : &high) += reach;
        contiguous *= size;
    }
    int64_t bits = (int64_t)tensor->dtype.bits * tensor->dtype.lanes;
    uintptr_t address = address_of(tensor);
    return (nj_extent){address + (uintptr_t)(low * bits / 8), address + (uintptr_t)(((high + 1) * bits + 7) / 8)};
}

bool nj_lies_apart(const DLTensor *one, const DLTensor *other)
{
    nj_extent a = extent_of(one), b = extent_of(other);
    return a.first == a.end || b.first == b.end || a.end <= b.first || b.end <= a.first;
}

bool nj_is_same_view(const DLTensor *one, const DLTensor *other)
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
