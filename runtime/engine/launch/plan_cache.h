/* Plans by key: open addressing, at most half full. An entry never changes once it is in, and what a look-up may still read is freed
 * with the cache: readers need no lock. Writers need one, which is the caller's. */
#ifndef NOJIT_LAUNCH_PLAN_CACHE_H
#define NOJIT_LAUNCH_PLAN_CACHE_H

#include "base/internal.h"
#include "select/key.h"

#include <stdatomic.h>

/* Keys of one kernel and device that are remembered; a tuning key that is not rounded can have any number of values. */
#define NJ_CACHED_PLANS_MAX 65536

typedef struct nj_plan_cache_places nj_plan_cache_places;

typedef struct {
    _Atomic(nj_plan_cache_places *) places; /* NULL until the first plan, and once cleared */
    size_t used;
} nj_plan_cache;

/* The plan of a key; NULL if there is none. */
NJ_FOR_BINDING void *nj_plan_cache_find(nj_plan_cache *cache, const nj_key *key);

/* Adds a plan under a key; false without memory. A plan that is there already stays, and a full cache takes no other: `taken` says
 * whether this one was. */
NJ_FOR_BINDING bool nj_plan_cache_publish(nj_plan_cache *cache, const nj_key *key, void *plan, bool *taken);

/* Drops all entries; `drop`, which may be NULL, gets each plan, and finds the cache empty. */
NJ_FOR_BINDING void nj_plan_cache_clear(nj_plan_cache *cache, void (*drop)(void *plan));

/* Calls `visit` with each plan until that returns another number than 0; returns its last result. */
NJ_FOR_BINDING int nj_plan_cache_visit(nj_plan_cache *cache, int (*visit)(void *plan, void *context), void *context);

#endif
