/* A cache of plans by key: a hash table with open addressing, at most half full. Readers need no lock, because entries never change and
 * tables that were replaced are freed only with the cache. Callers lock around writes. */
#ifndef NOJIT_LAUNCH_PLAN_CACHE_H
#define NOJIT_LAUNCH_PLAN_CACHE_H

#include "base/internal.h"
#include "select/key.h"

#include <stdatomic.h>

/* The largest number of cached keys of a kernel on a device; a tuning key that is not rounded could otherwise fill the memory. */
#define NJ_CACHED_PLANS_MAX 65536

typedef struct nj_plan_cache_places nj_plan_cache_places;

typedef struct {
    _Atomic(nj_plan_cache_places *) places; /* NULL before the first plan and after a clear */
    size_t used;                            /* number of entries */
} nj_plan_cache;

/* Returns the plan of a key; NULL if the key is not cached. */
NJ_FOR_BINDING void *nj_plan_cache_find(nj_plan_cache *cache, const nj_key *key);

/* Adds a plan under a key; false if memory runs out. Sets `taken` to true if the plan was added; a key that is already cached and a full
 * cache stay as they are. */
NJ_FOR_BINDING bool nj_plan_cache_publish(nj_plan_cache *cache, const nj_key *key, void *plan, bool *taken);

/* Drops all entries and calls `drop`, unless it is NULL, with each plan. The cache is already empty then. */
NJ_FOR_BINDING void nj_plan_cache_clear(nj_plan_cache *cache, void (*drop)(void *plan));

/* Calls `visit` with each plan until it returns a number other than 0. Returns its last result, or 0. */
NJ_FOR_BINDING int nj_plan_cache_visit(nj_plan_cache *cache, int (*visit)(void *plan, void *context), void *context);

#endif
