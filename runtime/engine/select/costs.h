/* What configs are estimated to take at a call: expressions of a tuning block, as docs/bundle-format.md says. */
#ifndef NOJIT_SELECT_COSTS_H
#define NOJIT_SELECT_COSTS_H

#include "base/internal.h"
#include "bundle/json.h"

/* How many configs of a block may have a cost. */
#define NJ_COSTS_MAX 63

/* What the names in such expressions stand for. */
typedef struct {
    const int64_t *key; /* `key0` and on */
    size_t key_count;
    int64_t multiprocessors;
} nj_cost_facts;

typedef struct {
    int64_t config;
    int64_t picoseconds; /* INT64_MAX if it cannot be computed */
} nj_cost;

/* Takes the next of a block's costs: 1, or 0 behind the last, or -1 if what stands there is none. */
NJ_INTERNAL int nj_next_cost(nj_json *json, bool first, const nj_cost_facts *facts, nj_cost *cost);

#endif
