/* Plans by key: open addressing, at most half full. An entry never changes once it is in, and what a look-up may still
 * read is freed with the cache: readers need no lock. Writers need one. */
#ifndef NOJIT_CACHE_H
#define NOJIT_CACHE_H

#include "plan.h"
#include "select/spec.h"

typedef struct {
    uint64_t hash;
    nj_plan_object *plan;
    uint32_t count;
    uint64_t words[];
} nj_cache_entry;

/* The entries, and the smaller array that they were in before. */
typedef struct nj_places {
    struct nj_places *previous;
    size_t capacity; /* a power of two */
    _Atomic(nj_cache_entry *) entries[];
} nj_places;

typedef struct {
    _Atomic(nj_places *) places; /* NULL until the first plan, and once cleared */
    size_t used;
} nj_cache;

void nj_cache_clear(nj_cache *cache);
int nj_cache_traverse(nj_cache *cache, visitproc visit, void *arg);

/* The plan of a key, borrowed; NULL if there is none. */
nj_plan_object *nj_cache_find(nj_cache *cache, const nj_key *key);

/* Keys of one kernel and device that are remembered; a tuning key that is not rounded can have any number of values. */
#define NJ_ENTRIES_MAX 65536

/* Adds a plan under a key; 0, or -1 with an exception raised. A plan that is there already stays, and a full cache takes no
 * other. The caller locks. */
int nj_cache_publish(nj_cache *cache, const nj_key *key, nj_plan_object *plan);

#endif
