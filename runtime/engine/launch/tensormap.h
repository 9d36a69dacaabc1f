/* Tensor maps: descriptors encoded for TMA, cached by address, shape, strides, box and options. */
#ifndef NOJIT_LAUNCH_TENSORMAP_H
#define NOJIT_LAUNCH_TENSORMAP_H

#include "driver/driver.h"
#include "launch/tensormap_cache.h"

/* How one descriptor of a runnable is encoded. */
typedef struct {
    int16_t source;   /* number of an argument of the call */
    int16_t leaf;     /* index of an entry of the argument's tuple; -1: the argument itself */
    int swizzle;      /* a CUtensorMapSwizzle */
    int element_type; /* a CUtensorMapDataType */
    unsigned int element_bytes;
    size_t rank;
    uint32_t box[NJ_DESCRIPTOR_RANK_MAX]; /* innermost first */
    bool fp4_padded;
} nj_map_facts;

typedef struct {
    nj_map_facts facts;
    nj_tensormap_cache cache; /* the maps encoded so far */
} nj_map;

/* Writes the tensor map of a descriptor to `out`; `argument` is its number, for errors. False with `error` filled. */
bool nj_map_encode(nj_map *map, nj_device *device, const nj_descriptor *descriptor, int argument, CUtensorMap *out, nj_error *error);

#endif
