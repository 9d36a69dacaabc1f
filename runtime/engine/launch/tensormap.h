/* Tensor maps: descriptors encoded for the copy engine, kept by address, shape, strides and what a copy takes. */
#ifndef NOJIT_LAUNCH_TENSORMAP_H
#define NOJIT_LAUNCH_TENSORMAP_H

#include "driver/driver.h"
#include "launch/tensormap_cache.h"

/* How one descriptor of a runnable is encoded. */
typedef struct {
    int16_t source;   /* an argument of the call */
    int16_t leaf;     /* and which entry of it; -1: the argument itself */
    int swizzle;      /* a CUtensorMapSwizzle */
    int element_type; /* a CUtensorMapDataType */
    unsigned int element_bytes;
    size_t rank;
    uint32_t box[NJ_DESCRIPTOR_RANK_MAX]; /* innermost first */
    bool fp4_padded;
} nj_map_facts;

typedef struct {
    nj_map_facts facts;
    nj_tensormap_cache cache; /* the maps made so far */
} nj_map;

/* Writes the map of a descriptor that is argument `argument`; false with `error` filled. */
bool nj_map_encode(nj_map *map, nj_device *device, const nj_descriptor *descriptor, int argument, CUtensorMap *out, nj_error *error);

#endif
