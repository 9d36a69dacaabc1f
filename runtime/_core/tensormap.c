#include "tensormap.h"

#include "errors.h"
#include "objects.h"

/* what the copy engine can address (cuda.h, cuTensorMapEncodeTiled) */
#define ADDRESS_ALIGN 16
#define DIMENSION_MAX (INT64_C(1) << 32)
#define STRIDE_BYTES_MAX (INT64_C(1) << 40)
#define BOX_MAX 256

/* 2^64 over the golden ratio, odd */
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* Up to CUDA 13.1 the driver sets this bit of a map's second word for tensors that are too small for it. */
#define FIXED_SINCE 13020
#define SMALL_TENSOR_BYTES (128 * 1024)
#define SMALL_TENSOR_BIT (UINT64_C(1) << 21)

static int read_block(PyObject *block, nj_map *map)
{
    map->rank = (int)PyTuple_GET_SIZE(block);
    if (map->rank < 1 || map->rank > NJ_RANK_MAX) {
        PyErr_SetString(PyExc_ValueError, "expected a tensor map of rank 1 to 5");
        return -1;
    }
    for (int i = 0; i < map->rank; i++) {
        unsigned long size = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(block, i));
        if (size == (unsigned long)-1 && PyErr_Occurred()) {
            return -1;
        }
        map->box[map->rank - 1 - i] = (uint32_t)size;
    }
    return 0;
}

int nj_map_read(PyObject *facts, Py_ssize_t argument_count, nj_map *map)
{
    int padded;
    PyObject *block;
    if (!nj_is_tuple(facts, "the facts of a tensor map") ||
        !PyArg_ParseTuple(facts, "hhiIiO!p", &map->source, &map->leaf, &map->swizzle, &map->element_bytes,
                          &map->element_type, &PyTuple_Type, &block, &padded)) {
        return -1;
    }
    map->fp4_padded = padded;
    if (map->source < 0 || map->source >= argument_count || map->leaf >= NJ_LEAVES_MAX || map->element_bytes == 0 ||
        map->element_bytes > 16) {
        PyErr_SetString(PyExc_ValueError, "expected the facts of a tensor map");
        return -1;
    }
    return read_block(block, map);
}

/* The numbers that the driver takes: innermost first, strides in bytes. */
typedef struct {
    uint64_t dimensions[NJ_RANK_MAX];
    uint64_t stride_bytes[NJ_RANK_MAX];
    uint32_t box[NJ_RANK_MAX]; /* steps included */
    uint32_t steps[NJ_RANK_MAX];
} encoding;

static int refuse(PyObject *kernel, PyObject *argument, const char *what, int64_t got)
{
    nj_refuse(kernel, argument, PyUnicode_FromFormat("%lld", (long long)got), what);
    return -1;
}

static int reverse(const nj_map *map, const nj_descriptor *descriptor, PyObject *kernel, PyObject *argument,
                   encoding *out)
{
    for (int i = 0; i < map->rank; i++) {
        int64_t size = descriptor->shape[map->rank - 1 - i];
        int64_t stride = descriptor->strides[map->rank - 1 - i];
        if (size > DIMENSION_MAX >> map->fp4_padded) {
            return refuse(kernel, argument, "expected a descriptor's dimension of at most 2^32", size);
        }
        out->dimensions[i] = (uint64_t)(i == 0 && map->fp4_padded ? 2 * size : size);
        if (i == 0) {
            continue;
        }
        if (stride < 0 || stride >= STRIDE_BYTES_MAX / map->element_bytes) {
            return refuse(kernel, argument, "expected a descriptor's stride of less than 2^40 bytes", stride);
        }
        if (stride * map->element_bytes % ADDRESS_ALIGN != 0) {
            return refuse(kernel, argument, "expected a descriptor's strides to be multiples of 16 bytes, in elements",
                          stride);
        }
        out->stride_bytes[i - 1] = (uint64_t)stride * map->element_bytes;
    }
    return 0;
}

/* Reads what a copy takes: the kernel's block, or as many elements in another box, of as many neighbours. */
static int reverse_box(const nj_map *map, const nj_descriptor *descriptor, PyObject *kernel, PyObject *argument,
                       encoding *out)
{
    uint64_t wanted = 1, count = 1;
    uint16_t width = descriptor->box[map->rank - 1];
    if (width != 0 && width != map->box[0]) {
        return refuse(kernel, argument, "expected a descriptor's box to be as wide as the kernel's block", width);
    }
    for (int i = 0; i < map->rank; i++) {
        int given = map->rank - 1 - i;
        uint32_t size = descriptor->box[given] == 0 ? map->box[i] : descriptor->box[given];
        out->steps[i] = descriptor->steps[given] == 0 ? 1 : descriptor->steps[given];
        out->box[i] = size * out->steps[i];
        if (out->box[i] > BOX_MAX) {
            return refuse(kernel, argument, "expected a descriptor's box to reach over at most 256 elements", out->box[i]);
        }
        wanted *= map->box[i];
        count *= size;
    }
    if (count != wanted) {
        return refuse(kernel, argument, "expected a descriptor's box of as many elements as the kernel's block",
                      (int64_t)count);
    }
    return 0;
}

static int check(const nj_map *map, const nj_descriptor *descriptor, PyObject *kernel, PyObject *argument)
{
    if (descriptor->rank != map->rank) {
        nj_refuse(kernel, argument, PyUnicode_FromFormat("%d", descriptor->rank), "expected a descriptor of rank %d",
                  map->rank);
        return -1;
    }
    if (descriptor->base.bits % ADDRESS_ALIGN != 0) {
        nj_refuse(kernel, argument, PyUnicode_FromFormat("%p", (void *)(uintptr_t)descriptor->base.bits),
                  "expected a descriptor's base aligned to 16 bytes");
        return -1;
    }
    /* maps of bytes stand for elements of 8 and of 4 bits */
    bool of_floats = map->element_type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 &&
                     map->element_type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
    if (descriptor->pads_nan && !of_floats) {
        nj_refuse(kernel, argument, PyUnicode_FromString(nj_dtype_name(descriptor->base.dtype)),
                  "expected a descriptor with padding 'nan' to be of floats of 16 bits or more");
        return -1;
    }
    return 0;
}

/* Bytes from the first element to the last, in the driver's order. */
static uint64_t extent(const nj_map *map, const encoding *numbers)
{
    uint64_t bytes = (numbers->dimensions[0] - 1) * map->element_bytes;
    for (int i = 1; i < map->rank; i++) {
        uint64_t more;
        if (__builtin_mul_overflow(numbers->dimensions[i] - 1, numbers->stride_bytes[i - 1], &more) ||
            __builtin_add_overflow(bytes, more, &bytes)) {
            return UINT64_MAX;
        }
    }
    return bytes;
}

typedef struct {
    const nj_map *map;
    const nj_device *device;
    const nj_descriptor *descriptor;
    const encoding *numbers;
    CUtensorMap *out;
} nj_encoding;

/* Encodes in the device's context. */
static nj_outcome encode_there(void *facts)
{
    const nj_encoding *it = facts;
    const nj_map *map = it->map;
    const nj_descriptor *descriptor = it->descriptor;
    int type = descriptor->rounds_tf32 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : map->element_type;
    int fill = descriptor->pads_nan ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : 0;
    bool pushed;
    nj_outcome outcome = nj_context_enter(it->device, &pushed);
    if (outcome.call != NULL) {
        return outcome;
    }
    outcome = NJ_TRY(cuTensorMapEncodeTiled, it->out, type, (uint32_t)map->rank, (void *)(uintptr_t)descriptor->base.bits,
                     it->numbers->dimensions, it->numbers->stride_bytes, it->numbers->box, it->numbers->steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, map->swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, fill);
    nj_context_leave(pushed);
    return outcome;
}

static int encode(const nj_map *map, nj_device *device, const nj_descriptor *descriptor, const encoding *numbers,
                  PyObject *where, CUtensorMap *out)
{
    int version;
    nj_encoding facts = {map, device, descriptor, numbers, out};
    nj_outcome outcome = nj_do_on_device(device, encode_there, &facts);
    if (nj_check(outcome, device, where) < 0 ||
        NJ_CUDA(where, cuDriverGetVersion, &version) < 0) {
        return -1;
    }
    if (version < FIXED_SINCE && extent(map, numbers) < SMALL_TENSOR_BYTES - 1) {
        out->words[1] &= ~SMALL_TENSOR_BIT;
    }
    return 0;
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

/* The ways of a key's set. */
static nj_kept_map *set_of(const nj_kept_map *kept, unsigned int sets, const nj_map_key *key, int rank)
{
    uint64_t hash = 0;
    for (int i = 0; i < rank; i++) {
        hash = (hash + (uint64_t)key->shape[i]) * GOLDEN;
    }
    /* last, so that addresses in step come to sets in turn */
    hash = (hash + key->address) * GOLDEN;
    return (nj_kept_map *)&kept[((hash >> 57) & (sets - 1)) * NJ_MAP_WAYS];
}

/* A way of the key's set that is free, or NULL. */
static nj_kept_map *free_way(const nj_kept_map *kept, unsigned int sets, const nj_map_key *key, int rank)
{
    nj_kept_map *ways = set_of(kept, sets, key, rank);
    for (int i = 0; i < NJ_MAP_WAYS; i++) {
        if (!ways[i].key.used) {
            return &ways[i];
        }
    }
    return NULL;
}

/* Doubles the sets, if there is memory for them. */
static void grow(nj_map *map)
{
    unsigned int sets = map->sets == 0 ? NJ_MAP_SETS_FIRST : 2 * map->sets;
    nj_kept_map *kept = PyMem_Calloc((size_t)sets * NJ_MAP_WAYS, sizeof *kept);
    if (kept == NULL) {
        return;
    }
    for (unsigned int i = 0; i < map->sets * NJ_MAP_WAYS; i++) {
        if (map->kept[i].key.used) {
            /* a set's maps go to two sets: there is room */
            *free_way(kept, sets, &map->kept[i].key, map->rank) = map->kept[i];
        }
    }
    PyMem_Free(map->kept);
    map->kept = kept;
    map->sets = sets;
}

static void keep(nj_map *map, const nj_map_key *key, const CUtensorMap *made)
{
    nj_kept_map *way = map->sets == 0 ? NULL : free_way(map->kept, map->sets, key, map->rank);
    if (way == NULL && map->sets < NJ_MAP_SETS_MAX) {
        grow(map);
        way = map->sets == 0 ? NULL : free_way(map->kept, map->sets, key, map->rank);
    }
    if (map->sets == 0) {
        return;
    }
    if (way == NULL) {
        way = &set_of(map->kept, map->sets, key, map->rank)[map->next++ % NJ_MAP_WAYS];
    }
    way->key = *key;
    memcpy(way->words, made->words, sizeof way->words);
}

void nj_map_clear(nj_map *map)
{
    PyMem_Free(map->kept);
    map->kept = NULL;
    map->sets = 0;
}

int nj_map_encode(nj_map *map, nj_device *device, const nj_descriptor *descriptor, PyObject *kernel,
                  PyObject *argument, PyObject *where, CUtensorMap *out)
{
    nj_map_key key = key_of(descriptor);
    if (map->sets != 0) {
        const nj_kept_map *ways = set_of(map->kept, map->sets, &key, map->rank);
        for (int i = 0; i < NJ_MAP_WAYS; i++) {
            if (memcmp(&ways[i].key, &key, sizeof key) == 0) {
                memcpy(out->words, ways[i].words, sizeof out->words);
                return 0;
            }
        }
    }
    encoding numbers;
    if (check(map, descriptor, kernel, argument) < 0 || reverse(map, descriptor, kernel, argument, &numbers) < 0 ||
        reverse_box(map, descriptor, kernel, argument, &numbers) < 0 ||
        encode(map, device, descriptor, &numbers, where, out) < 0) {
        return -1;
    }
    keep(map, &key, out);
    return 0;
}
