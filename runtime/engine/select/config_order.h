/* Orders the configs of a call, by measured problems near it or by estimated times.
 *
 * A problem with the call's key decides alone. Otherwise the block's estimates decide, if it has any: the lowest comes first, and
 * configs whose estimate cannot be computed come last. Without estimates, all near problems decide: a config's rank is the weighted
 * mean of how far it is behind the best of each problem. A problem that is `d` octaves farther away than the nearest has the weight
 * exp(-d / 0.3). Configs of equal rank keep the order of the nearest problem. */
#ifndef NOJIT_SELECT_CONFIG_ORDER_H
#define NOJIT_SELECT_CONFIG_ORDER_H

#include "select/device_tuning.h"

/* The facts by which the configs of a call are ordered. */
typedef struct {
    nj_tuned tuned;
    const int64_t *key; /* the call's tuning key, rounded to buckets */
    uint32_t key_count;
} nj_preference;

/* Configs, best first; owned. */
typedef struct {
    uint32_t *configs;
    uint32_t count;
} nj_order;

/* Orders the configs that a block measured or estimated, best first. Returns false without memory. */
NJ_FOR_BINDING bool nj_order_configs(const nj_tuning_block *block, const nj_preference *preference, nj_order *order);

NJ_FOR_BINDING void nj_order_clear(nj_order *order);

/* Returns the index of the point nearest to a key: an equal point, or else the one with the least sum of |log2(a / b)|, where 0 counts
 * as a half. Ties go to the first point. `count` must not be 0. */
NJ_FOR_BINDING size_t nj_nearest_point(const int64_t *points, size_t count, const int64_t *key, uint32_t key_count);

/* Returns the index of the table whose device is closest in multiprocessors and memory; among equal ones, a device of this name wins.
 * There must be a table. */
NJ_FOR_BINDING size_t nj_closest_table(const nj_tuning *tuning, nj_span name, uint64_t multiprocessors, uint64_t memory_bytes);

/* One measured problem: how far each of its configs is behind the fastest, in thousandths of an octave. */
typedef struct {
    double weight;
    uint32_t count;
    const uint32_t *configs;
    const uint32_t *behind;
} nj_behind_row;

/* Sums up how far each config is behind in all rows, by weight. A row that did not measure a config counts it as an octave behind its
 * slowest. Fills `configs`, in the order of their first row, and `sums`; both need room for all configs that rows name. Returns the
 * number of configs; SIZE_MAX without memory. */
NJ_FOR_BINDING size_t nj_behind_in_sum(const nj_behind_row *rows, size_t count, uint32_t *configs, double *sums);

#endif
