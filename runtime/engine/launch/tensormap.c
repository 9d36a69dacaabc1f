#include "launch/tensormap.h"

/* limits of tensor maps (cuda.h, cuTensorMapEncodeTiled) */
#define ADDRESS_ALIGN 16
#define DIMENSION_MAX (INT64_C(1) << 32)
#define STRIDE_BYTES_MAX (INT64_C(1) << 40)
#define BOX_MAX 256

/* Drivers up to CUDA 13.1 set this bit of a map's second word even for tensors that are too small for it. */
#define FIXED_SINCE 13020
#define SMALL_TENSOR_BYTES (128 * 1024)
#define SMALL_TENSOR_BIT (UINT64_C(1) << 21)

/* The numbers that cuTensorMapEncodeTiled takes: innermost dimension first, strides in bytes. */
typedef struct {
    uint64_t dimensions[NJ_DESCRIPTOR_RANK_MAX];
    uint64_t stride_bytes[NJ_DESCRIPTOR_RANK_MAX];
    uint32_t box[NJ_DESCRIPTOR_RANK_MAX]; /* span of the box: elements copied times their step */
    uint32_t steps[NJ_DESCRIPTOR_RANK_MAX];
} encoding;

/* The state of encoding a tensor map. */
typedef struct {
    const nj_map_facts *map;
    nj_device *device;
    const nj_descriptor *descriptor;
    int argument;
    encoding numbers;
    CUtensorMap *out;
    nj_error *error;
} encoder;

static bool refuse(const encoder *it, const char *what, int64_t got)
{
    return nj_refuse_argument(it->error, it->argument, nj_format("%lld", (long long)got).text, "%s", what);
}

static bool reverse(encoder *it)
{
    const nj_map_facts *map = it->map;
    for (size_t i = 0; i < map->rank; i++) {
        int64_t size = it->descriptor->shape[map->rank - 1 - i];
        int64_t stride = it->descriptor->strides[map->rank - 1 - i];
        if (size > DIMENSION_MAX >> map->fp4_padded) {
            return refuse(it, "expected a descriptor's dimension of at most 2^32", size);
        }
        it->numbers.dimensions[i] = (uint64_t)(i == 0 && map->fp4_padded ? 2 * size : size);
        if (i == 0) {
            continue;
        }
        if (stride < 0 || stride >= STRIDE_BYTES_MAX / map->element_bytes) {
            return refuse(it, "expected a descriptor's stride of less than 2^40 bytes", stride);
        }
        if (stride * map->element_bytes % ADDRESS_ALIGN != 0) {
            return refuse(it, "expected a descriptor's strides to be multiples of 16 bytes, in elements", stride);
        }
        it->numbers.stride_bytes[i - 1] = (uint64_t)stride * map->element_bytes;
    }
    return true;
}

/* Sets the box of one copy: the kernel's block, or the descriptor's own box with as many elements. */
static bool reverse_box(encoder *it)
{
    const nj_map_facts *map = it->map;
    const nj_descriptor *descriptor = it->descriptor;
    uint64_t wanted = 1, count = 1;
    uint16_t width = descriptor->box[map->rank - 1];
    if (width != 0 && width != map->box[0]) {
        return refuse(it, "expected a descriptor's box to be as wide as the kernel's block", width);
    }
    for (size_t i = 0; i < map->rank; i++) {
        size_t given = map->rank - 1 - i;
        uint32_t size = descriptor->box[given] == 0 ? map->box[i] : descriptor->box[given];
        it->numbers.steps[i] = descriptor->steps[given] == 0 ? 1 : descriptor->steps[given];
        it->numbers.box[i] = size * it->numbers.steps[i];
        if (it->numbers.box[i] > BOX_MAX) {
            return refuse(it, "expected a descriptor's box to reach over at most 256 elements", it->numbers.box[i]);
        }
        wanted *= map->box[i];
        count *= size;
    }
    return count == wanted ||
           refuse(it, "expected a descriptor's box of as many elements as the kernel's block", (int64_t)count);
}

static bool check(const encoder *it)
{
    const nj_map_facts *map = it->map;
    const nj_descriptor *descriptor = it->descriptor;
    if (descriptor->rank != map->rank) {
        return nj_refuse_argument(it->error, it->argument, nj_format("%d", descriptor->rank).text,
                                  "expected a descriptor of rank %zu", map->rank);
    }
    if (descriptor->base.bits % ADDRESS_ALIGN != 0) {
        return nj_refuse_argument(it->error, it->argument, nj_format("%p", (void *)(uintptr_t)descriptor->base.bits).text,
                                  "expected a descriptor's base aligned to 16 bytes");
    }
    /* a map of bytes may hold fp8 or fp4, which the driver cannot fill with NaN */
    bool of_floats = map->element_type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 &&
                     map->element_type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
    return !descriptor->pads_nan || of_floats ||
           nj_refuse_argument(it->error, it->argument, nj_dtype_name(descriptor->base.dtype),
                              "expected a descriptor with padding 'nan' to be of floats of 16 bits or more");
}

/* Returns the bytes from the first element to the last. */
static uint64_t extent(const encoder *it)
{
    uint64_t bytes = (it->numbers.dimensions[0] - 1) * it->map->element_bytes;
    for (size_t i = 1; i < it->map->rank; i++) {
        uint64_t more;
        if (__builtin_mul_overflow(it->numbers.dimensions[i] - 1, it->numbers.stride_bytes[i - 1], &more) ||
            __builtin_add_overflow(bytes, more, &bytes)) {
            return UINT64_MAX;
        }
    }
    return bytes;
}

/* Encodes the tensor map in the device's context. */
static nj_outcome encode_there(void *facts)
{
    const encoder *it = facts;
    const nj_descriptor *descriptor = it->descriptor;
    int type = descriptor->rounds_tf32 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : it->map->element_type;
    int fill = descriptor->pads_nan ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : 0;
    bool pushed;
    nj_outcome outcome = nj_context_enter(it->device, &pushed);
    if (outcome.call != NULL) {
        return outcome;
    }
    outcome = NJ_TRY(cuTensorMapEncodeTiled, it->out, type, (uint32_t)it->map->rank, (void *)(uintptr_t)descriptor->base.bits,
                     it->numbers.dimensions, it->numbers.stride_bytes, it->numbers.box, it->numbers.steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, it->map->swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, fill);
    nj_context_leave(pushed);
    return outcome;
}

static bool encode(encoder *it)
{
    int version;
    if (!nj_outcome_good(nj_on_device(it->device, encode_there, it), it->error) ||
        !nj_outcome_good(NJ_TRY(cuDriverGetVersion, &version), it->error)) {
        return false;
    }
    if (version < FIXED_SINCE && extent(it) < SMALL_TENSOR_BYTES - 1) {
        it->out->words[1] &= ~SMALL_TENSOR_BIT;
    }
    return true;
}

static nj_map_key key_of(const nj_descriptor *descriptor)
{
    nj_map_key key;
    memset(&key, 0, sizeof key);
    key.address = (uint64_t)descriptor->base.bits;
    memcpy(key.shape, descriptor->shape, descriptor->rank * sizeof *key.shape);
    memcpy(key.strides, descriptor->strides, descriptor->rank * sizeof *key.strides);
    memcpy(key.box, descriptor->box, sizeof key.box);
    memcpy(key.steps, descriptor->steps, sizeof key.steps);
    key.pads_nan = descriptor->pads_nan;
    key.rounds_tf32 = descriptor->rounds_tf32;
    key.used = 1;
    return key;
}

bool nj_map_encode(nj_map *map, nj_device *device, const nj_descriptor *descriptor, int argument, CUtensorMap *out, nj_error *error)
{
    nj_map_key key = key_of(descriptor);
    if (nj_tensormap_cache_find(&map->cache, &key, out)) {
        return true;
    }
    encoder it = {.map = &map->facts, .device = device, .descriptor = descriptor, .argument = argument, .out = out, .error = error};
    if (!check(&it) || !reverse(&it) || !reverse_box(&it) || !encode(&it)) {
        return false;
    }
    nj_tensormap_cache_add(&map->cache, &key, out);
    return true;
}
