/* cuTensorMapEncodeTiled: the rules of cuda.h are checked, and the facts stored in the clear for tests to read. */
#include "state.h"

#include <string.h>

enum { RANK_MAX = 5, BOX_MAX = 256, ALIGN_MAP = 64, ALIGN_ADDRESS = 16 };

/* 128 bytes like the real one; tests/fakecuda/driver.py reads the same layout */
struct fake_tensor_map {
    uint32_t magic;
    uint8_t type, rank, swizzle, fill;
    uint64_t address;
    uint64_t stride_bytes[RANK_MAX - 1];
    uint32_t dim[RANK_MAX];
    uint32_t box[RANK_MAX];
    uint32_t reserved[10];
};

_Static_assert(sizeof(struct fake_tensor_map) == 128, "a CUtensorMap has 128 bytes");

static const uint8_t element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

/* The rule that dimension `i` breaks, or NULL. */
static const char *check_dimension(unsigned i, const uint64_t *dim, const uint64_t *strides, const uint32_t *box,
                                   const uint32_t *steps) {
    if (dim[i] == 0 || dim[i] > (uint64_t)1 << 32)
        return "a dimension of 1 to 2^32";
    if (box[i] == 0 || box[i] > BOX_MAX)
        return "a box of 1 to 256";
    if (steps[i] == 0 || steps[i] > 8)
        return "an element stride of 1 to 8";
    if (i > 0 && (strides[i - 1] % 16 || strides[i - 1] >= (uint64_t)1 << 40))
        return "strides that are multiples of 16 below 2^40";
    return NULL;
}

EXPORT CUresult cuTensorMapEncodeTiled(void *out, int type, uint32_t rank, void *address, const uint64_t *dim,
                                       const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                                       int interleave, int swizzle, int promotion, int fill) {
    (void)promotion;
    const char *rule = NULL;
    ENTER(cuTensorMapEncodeTiled);
    if ((uintptr_t)out % ALIGN_MAP)
        rule = "a descriptor aligned to 64";
    else if (type < 0 || type >= (int)sizeof element_bytes || rank == 0 || rank > RANK_MAX || interleave)
        rule = "a known type, a rank of 1 to 5 and no interleave";
    else if ((uintptr_t)address % ALIGN_ADDRESS)
        rule = "an address aligned to 16";
    for (unsigned i = 0; !rule && i < rank; i++)
        rule = check_dimension(i, dim, strides, box, steps);
    uint32_t inner = rule ? 0 : box[0] * element_bytes[type];
    if (!rule && (inner % 16 || (swizzle > 0 && swizzle < 4 && inner > 16u << swizzle)))
        rule = "an inner box that is a multiple of 16 bytes and fits the swizzle";
    if (rule)
        LEAVE(cuTensorMapEncodeTiled, fake_violation(CUDA_ERROR_INVALID_VALUE, "tensor map: expected %s", rule));
    struct fake_tensor_map map = {.magic = 0x70616d74, .type = (uint8_t)type, .rank = (uint8_t)rank};
    map.swizzle = (uint8_t)swizzle, map.fill = (uint8_t)fill, map.address = (uint64_t)(uintptr_t)address;
    for (unsigned i = 0; i < rank; i++) {
        map.dim[i] = (uint32_t)dim[i], map.box[i] = box[i];
        if (i)
            map.stride_bytes[i - 1] = strides[i - 1];
    }
    memcpy(out, &map, sizeof map);
    LEAVE(cuTensorMapEncodeTiled, CUDA_SUCCESS);
}
