/* Plans by key: open addressing, at most half full. Guarded by the GIL; an entry never changes once it is in. */
#ifndef NOJIT_CACHE_H
#define NOJIT_CACHE_H

#include "plan.h"

#define NJ_KEY_WORDS_MAX 2048

typedef struct {
    uint64_t hash;
    uint32_t count;
    uint64_t words[NJ_KEY_WORDS_MAX];
} nj_key;

typedef struct {
    uint64_t hash;
    nj_plan *plan;
    uint32_t count;
    uint64_t words[];
} nj_entry;

typedef struct {
    nj_entry **entries; /* NULL once cleared; else a power of two of places */
    size_t capacity;
    size_t used;
} nj_cache;

/* An empty cache; 0, or -1 with MemoryError raised. */
int nj_cache_init(nj_cache *cache);
void nj_cache_clear(nj_cache *cache);
int nj_cache_traverse(const nj_cache *cache, visitproc visit, void *arg);

/* The plan of a key, borrowed; NULL if there is none. */
nj_plan *nj_cache_find(const nj_cache *cache, const nj_key *key);

/* Adds a plan under a key; 0, or -1 with an exception raised. A plan that is there already stays. */
int nj_cache_publish(nj_cache *cache, const nj_key *key, nj_plan *plan);

#endif
