/* Tensor maps that a runnable keeps, so that each is encoded once: found without a lock while others are added. */
#ifndef NOJIT_LAUNCH_TENSORMAP_CACHE_H
#define NOJIT_LAUNCH_TENSORMAP_CACHE_H

#include "driver/abi.h"
#include "expr/arguments.h"

#include <pthread.h>
#include <stdatomic.h>

/* The key of a map among those of a runnable. */
typedef struct {
    uint64_t address;
    int64_t shape[NJ_DESCRIPTOR_RANK_MAX];
    int64_t strides[NJ_DESCRIPTOR_RANK_MAX];
    uint16_t box[NJ_DESCRIPTOR_RANK_MAX];
    uint8_t steps[NJ_DESCRIPTOR_RANK_MAX];
    uint8_t pads_nan;
    uint8_t rounds_tf32;
    uint8_t used; /* 1 */
    uint8_t unused[6];
} nj_map_key;

struct nj_map_table;

/* The maps by their hash: in 2 sets at first, and in up to 128 as more come, so that each layer of a model finds those of its weights. */
typedef struct {
    pthread_mutex_t lock; /* of who adds */
    atomic_uint edition;  /* odd while a map is written: what was read meanwhile is none */
    _Atomic(struct nj_map_table *) table; /* NULL before the first map */
    unsigned int next;    /* the way that is given up next */
} nj_tensormap_cache;

void nj_tensormap_cache_init(nj_tensormap_cache *cache);
void nj_tensormap_cache_clear(nj_tensormap_cache *cache);

/* Whether the map of a key is there; writes it. */
bool nj_tensormap_cache_find(const nj_tensormap_cache *cache, const nj_map_key *key, CUtensorMap *map);

/* Adds a map, if there is memory for it. */
void nj_tensormap_cache_add(nj_tensormap_cache *cache, const nj_map_key *key, const CUtensorMap *map);

#endif
