/* A runnable's cache of encoded tensor maps. Look-ups take no lock, even while other threads add maps. */
#ifndef NOJIT_LAUNCH_TENSORMAP_CACHE_H
#define NOJIT_LAUNCH_TENSORMAP_CACHE_H

#include "driver/abi.h"
#include "expr/arguments.h"

#include <pthread.h>
#include <stdatomic.h>

/* The key of a cached map. */
typedef struct {
    uint64_t address;
    int64_t shape[NJ_DESCRIPTOR_RANK_MAX];
    int64_t strides[NJ_DESCRIPTOR_RANK_MAX];
    uint16_t box[NJ_DESCRIPTOR_RANK_MAX];
    uint8_t steps[NJ_DESCRIPTOR_RANK_MAX];
    uint8_t pads_nan;
    uint8_t rounds_tf32;
    uint8_t used; /* 1; an unused way of the cache has 0 */
    uint8_t unused[6];
} nj_map_key;

struct nj_map_table;

/* A set-associative cache. It has 2 sets at first and grows to 128, so that every layer of a model finds the maps of its weights. */
typedef struct {
    pthread_mutex_t lock; /* held while a map is added */
    atomic_uint edition;  /* a seqlock: odd while a map is written; readers discard a map if it was odd or has changed */
    _Atomic(struct nj_map_table *) table; /* NULL before the first map */
    unsigned int next;    /* counter that picks the way to replace next */
} nj_tensormap_cache;

void nj_tensormap_cache_init(nj_tensormap_cache *cache);
void nj_tensormap_cache_clear(nj_tensormap_cache *cache);

/* Looks up the map of a key and writes it to `map`; false if it is not cached. */
bool nj_tensormap_cache_find(const nj_tensormap_cache *cache, const nj_map_key *key, CUtensorMap *map);

/* Adds a map. Does nothing if memory runs out. */
void nj_tensormap_cache_add(nj_tensormap_cache *cache, const nj_map_key *key, const CUtensorMap *map);

#endif
