/* cuTensorMapEncodeTiled: the rules of cuda.h are checked, and the facts stored in the clear for tests to read. */
#include "state.h"

#include <string.h>

enum {
    RANK_MAX = 5,
    BOX_MAX = 256,
    STEP_MAX = 8,
    ALIGN_MAP = 64,
    PACKED_BOX = 128,
    INTERLEAVE_32B = 2,
    PROMOTION_MAX = 3,
    FILL_NAN = 1,
    MAGIC = 0x70616d74,
    FIXED_SINCE = 13020,
    SMALL_TENSOR_BYTES = 128 << 10,
};

/* Drivers before 13.2 set this bit of the second word, which is wrong for small tensors: launchers clear it there. */
static const uint64_t SMALL_BIT = UINT64_C(1) << 21;

enum { SWIZZLE_NONE, SWIZZLE_32B, SWIZZLE_64B, SWIZZLE_128B, SWIZZLE_128B_ATOM_64B = 6 };

/* CUtensorMapDataType, as far as the rules tell types apart */
enum { FLOAT16 = 6, TFLOAT32_FTZ = 12, U4_ALIGN8B = 13, U4_ALIGN16B = 14, U6_ALIGN16B = 15, TYPES };

static const uint8_t element_bits[TYPES] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};

/* 128 bytes like the real one; tests/fakecuda/driver.py reads the same layout */
struct fake_tensor_map {
    uint32_t magic;
    uint8_t type, rank, swizzle, fill;
    uint64_t flags;
    uint64_t address;
    uint64_t stride_bytes[RANK_MAX - 1];
    uint32_t dim[RANK_MAX]; /* 2^32 is stored as 0 */
    uint32_t box[RANK_MAX];
    uint8_t step[RANK_MAX];
    uint8_t interleave, promotion, reserved[5];
    uint32_t unused[4];
    uint32_t checksum;
};

_Static_assert(sizeof(struct fake_tensor_map) == FAKE_TENSOR_MAP_BYTES, "a CUtensorMap has 128 bytes");

/* what the caller asks for, by cuda.h's names */
struct map_request {
    int type;
    uint32_t rank;
    uint64_t address;
    const uint64_t *dim, *strides;
    const uint32_t *box, *steps;
    int interleave, swizzle, promotion, fill;
};

static int is_packed(const struct map_request *asked) { return asked->type == U4_ALIGN16B || asked->type == U6_ALIGN16B; }

static int in_range(int value, int last) { return value >= 0 && value <= last; }

/* Each of these: the rule that is broken, or NULL. */
static const char *check_enums(const struct map_request *asked) {
    if (!in_range(asked->type, TYPES - 1))
        return "a known element type";
    if (asked->rank == 0 || asked->rank > RANK_MAX || (asked->interleave && asked->rank < 3))
        return "a rank of 1 to 5, at least 3 if interleaved";
    if (!in_range(asked->interleave, INTERLEAVE_32B) || !in_range(asked->swizzle, SWIZZLE_128B_ATOM_64B) ||
        !in_range(asked->promotion, PROMOTION_MAX) || !in_range(asked->fill, FILL_NAN))
        return "a known interleave, swizzle, promotion and fill";
    if (asked->fill == FILL_NAN && (asked->type < FLOAT16 || asked->type > TFLOAT32_FTZ))
        return "a float type where the fill is NaN";
    if (asked->interleave == INTERLEAVE_32B && asked->swizzle != SWIZZLE_32B)
        return "a swizzle of 32 bytes with an interleave of 32 bytes";
    if (!asked->dim || !asked->box || !asked->steps || (asked->rank > 1 && !asked->strides))
        return "arrays of dimensions, strides, boxes and element strides";
    return NULL;
}

static const char *check_dimension(const struct map_request *asked, unsigned i, unsigned align) {
    if (asked->dim[i] == 0 || asked->dim[i] > (uint64_t)1 << 32)
        return "a dimension of 1 to 2^32";
    if (asked->box[i] == 0 || asked->box[i] > BOX_MAX)
        return "a box of 1 to 256";
    if (i > 0 && (asked->steps[i] == 0 || asked->steps[i] > STEP_MAX))
        return "an element stride of 1 to 8";
    if (i > 0 && (asked->strides[i - 1] % align || asked->strides[i - 1] >= (uint64_t)1 << 40))
        return align == 16 ? "strides that are multiples of 16 below 2^40"
                           : "strides that are multiples of 32 below 2^40";
    return NULL;
}

static const char *check_inner(const struct map_request *asked) {
    uint32_t inner = asked->box[0] * element_bits[asked->type] / 8;
    if (is_packed(asked) && (asked->box[0] != PACKED_BOX || asked->dim[0] % PACKED_BOX))
        return "an inner box of 128 and an inner dimension that is a multiple of it";
    if (is_packed(asked) && (asked->swizzle == SWIZZLE_32B || asked->swizzle == SWIZZLE_64B))
        return "no swizzle or one of 128 bytes for a padded type";
    if (asked->type == U4_ALIGN8B && asked->dim[0] % 2)
        return "an even inner dimension";
    if (asked->interleave || is_packed(asked))
        return NULL;
    uint32_t span = asked->swizzle >= SWIZZLE_128B ? 128 : 16u << asked->swizzle;
    if (inner % 16 || (asked->swizzle && inner > span))
        return "an inner box that is a multiple of 16 bytes and fits the swizzle";
    return NULL;
}

static const char *check(const void *out, const struct map_request *asked) {
    if (!out || (uintptr_t)out % ALIGN_MAP)
        return "a descriptor aligned to 64";
    const char *rule = check_enums(asked);
    unsigned align = asked->interleave == INTERLEAVE_32B || is_packed(asked) ? 32 : 16;
    if (!rule && asked->address % align)
        rule = align == 16 ? "an address aligned to 16" : "an address aligned to 32";
    for (unsigned i = 0; !rule && i < asked->rank; i++)
        rule = check_dimension(asked, i, align);
    return rule ? rule : check_inner(asked);
}

/* Of all but the flags, which a launcher may have to mend. */
static uint32_t checksum(const struct fake_tensor_map *map) {
    uint32_t sum = 2166136261u;
    struct fake_tensor_map rest = *map;
    rest.flags = 0;
    const unsigned char *bytes = (const unsigned char *)&rest;
    for (size_t i = 0; i < offsetof(struct fake_tensor_map, checksum); i++)
        sum = (sum ^ bytes[i]) * 16777619u;
    return sum;
}

/* Whether less than 128 KiB lie between the first byte and the last. */
static int is_small(const struct fake_tensor_map *map) {
    long double extent = ((map->dim[0] ? map->dim[0] : 4294967296.0L) - 1) * element_bits[map->type] / 8;
    for (int i = 1; i < map->rank; i++)
        extent += ((map->dim[i] ? map->dim[i] : 4294967296.0L) - 1) * (long double)map->stride_bytes[i - 1];
    return extent + 1 < SMALL_TENSOR_BYTES;
}

static uint64_t right_flags(const struct fake_tensor_map *map) {
    return fake.driver_version < FIXED_SINCE && !is_small(map) ? SMALL_BIT : 0;
}

static struct fake_tensor_map make(const struct map_request *asked) {
    struct fake_tensor_map map = {
        .magic = MAGIC,
        .type = (uint8_t)asked->type,
        .rank = (uint8_t)asked->rank,
        .swizzle = (uint8_t)asked->swizzle,
        .fill = (uint8_t)asked->fill,
        .flags = fake.driver_version < FIXED_SINCE ? SMALL_BIT : 0,
        .address = asked->address,
        .interleave = (uint8_t)asked->interleave,
        .promotion = (uint8_t)asked->promotion,
    };
    for (unsigned i = 0; i < asked->rank; i++) {
        map.dim[i] = (uint32_t)asked->dim[i], map.box[i] = asked->box[i], map.step[i] = (uint8_t)asked->steps[i];
        if (i)
            map.stride_bytes[i - 1] = asked->strides[i - 1];
    }
    map.checksum = checksum(&map);
    return map;
}

const char *fake_check_tensor_map(const void *bytes, CUdeviceptr *address) {
    struct fake_tensor_map map;
    memcpy(&map, bytes, sizeof map);
    *address = map.address;
    if (map.magic != MAGIC || map.checksum != checksum(&map))
        return "no tensor map";
    return map.flags == right_flags(&map) ? NULL : "a tensor map with the driver's bit for small tensors wrong";
}

EXPORT CUresult cuTensorMapEncodeTiled(void *out, int type, uint32_t rank, void *address, const uint64_t *dim,
                                       const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                                       int interleave, int swizzle, int promotion, int fill) {
    struct map_request asked = {type,  rank,       (uint64_t)(uintptr_t)address, dim, strides, box, steps, interleave,
                            swizzle, promotion, fill};
    ENTER(cuTensorMapEncodeTiled);
    struct fake_context *context = fake_current();
    const char *rule = check(out, &asked);
    if (!rule && context && fake.capability[context->device] < 90)
        rule = "a device of compute capability 9.0 or later";
    if (!context)
        LEAVE(cuTensorMapEncodeTiled, fake_violation(CUDA_ERROR_INVALID_CONTEXT, "tensor map made without a context"));
    if (rule)
        LEAVE(cuTensorMapEncodeTiled, fake_violation(CUDA_ERROR_INVALID_VALUE, "tensor map: expected %s", rule));
    struct fake_tensor_map map = make(&asked);
    memcpy(out, &map, sizeof map);
    LEAVE(cuTensorMapEncodeTiled, CUDA_SUCCESS);
}
