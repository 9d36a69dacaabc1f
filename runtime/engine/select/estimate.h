/* Computes the estimated times of configs for a call, by the expressions of a tuning block (docs/bundle-format.md). */
#ifndef NOJIT_SELECT_ESTIMATE_H
#define NOJIT_SELECT_ESTIMATE_H

#include "table/cost.h"

/* The values of the names in these expressions. */
typedef struct {
    const int64_t *key; /* `key0` and on */
    size_t key_count;
    int64_t multiprocessors;
} nj_estimate_facts;

/* Computes a cost in picoseconds; INT64_MAX if it cannot be computed. */
NJ_FOR_BINDING int64_t nj_estimate_of(nj_span words, const nj_estimate_facts *facts);

#endif
