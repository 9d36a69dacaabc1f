/* Tensor maps: descriptors encoded for the copy engine, kept by address, shape, strides and what a copy takes. */
#ifndef NOJIT_TENSORMAP_H
#define NOJIT_TENSORMAP_H

#include "call.h"
#include "driver.h"

/* Maps that one plan keeps for one of its descriptors, by their hash: in 2 sets at first, in 128 as more are met, so that
 * each layer of a model finds its weights'. */
#define NJ_MAP_WAYS 4
#define NJ_MAP_SETS_FIRST 2
#define NJ_MAP_SETS_MAX 128

/* What tells one map of a plan from another. */
typedef struct {
    uint64_t address;
    int64_t shape[NJ_RANK_MAX];
    int64_t strides[NJ_RANK_MAX];
    uint16_t box[NJ_RANK_MAX];
    uint8_t steps[NJ_RANK_MAX];
    uint8_t pads_nan;
    uint8_t rounds_tf32;
    uint8_t used;
    uint8_t unused[6];
} nj_map_key;

typedef struct {
    nj_map_key key;
    uint64_t words[16]; /* not CUtensorMap: this memory is not aligned to 64 bytes */
} nj_kept_map;

/* How one descriptor of a plan is encoded, and the maps made so far. */
typedef struct {
    int16_t source; /* an argument of the call */
    int16_t leaf;   /* and which entry of it; -1: the argument itself */
    int swizzle;    /* a CUtensorMapSwizzle */
    int element_type; /* a CUtensorMapDataType */
    unsigned int element_bytes;
    int rank;
    uint32_t box[NJ_RANK_MAX]; /* innermost first */
    bool fp4_padded;
    unsigned int next; /* the way that is given up next */
    unsigned int sets; /* a power of two; 0 before the first map */
    nj_kept_map *kept; /* set by set */
} nj_map;

/* Reads (source, leaf, swizzle, element bytes, element type, block, whether 4-bit values are padded): 0, or -1 with
 * ValueError raised. */
int nj_map_read(PyObject *facts, Py_ssize_t argument_count, nj_map *map);

/* Forgets the maps made so far. */
void nj_map_clear(nj_map *map);

/* Writes the map of a descriptor: 0, or -1 with an exception raised. The caller guards `map`. */
int nj_map_encode(nj_map *map, nj_device *device, const nj_descriptor *descriptor, PyObject *kernel,
                  PyObject *argument, PyObject *where, CUtensorMap *out);

#endif
