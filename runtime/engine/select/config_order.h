/* Orders the configs of a call, by the measured problems near it and by estimates made of them.
 *
 * A problem with the same key decides alone. Else estimates do, if the block has any: the least comes first, and configs whose
 * estimate cannot be computed come last. Without estimates the near problems decide together. A config's rank is then the mean of how
 * far it is behind the best of each problem, where a problem that is `d` octaves farther than the nearest weighs exp(-d / 0.3). Configs
 * of equal rank are in the nearest problem's order. */
#ifndef NOJIT_SELECT_CONFIG_ORDER_H
#define NOJIT_SELECT_CONFIG_ORDER_H

#include "select/device_tuning.h"

/* The facts by which the configs of a call are ordered. */
typedef struct {
    nj_tuned tuned;
    const int64_t *key; /* rounded to its buckets */
    uint32_t key_count;
} nj_preference;

/* Configs in an order; owned. */
typedef struct {
    uint32_t *configs;
    uint32_t count;
} nj_order;

/* Orders the configs of a block for a key, the best first: those that its problems name. False without memory. */
NJ_FOR_BINDING bool nj_order_configs(const nj_tuning_block *block, const nj_preference *preference, nj_order *order);

NJ_FOR_BINDING void nj_order_clear(nj_order *order);

/* The place of the point nearest to a key: an equal one, else the least sum of |log2(a / b)|, where 0 counts as a half. Of equally
 * near points the first is taken. There is at least one. */
NJ_FOR_BINDING size_t nj_nearest_point(const int64_t *points, size_t count, const int64_t *key, uint32_t key_count);

/* The table of the device that is most like one: by multiprocessors and memory, then by name. There is at least one. */
NJ_FOR_BINDING size_t nj_closest_table(const nj_tuning *tuning, nj_span name, uint64_t multiprocessors, uint64_t memory_bytes);

/* One measured problem: how far each of its configs is behind the fastest, in thousandths of an octave. */
typedef struct {
    double weight;
    uint32_t count;
    const uint32_t *configs;
    const uint32_t *behind;
} nj_behind_row;

/* Adds up how far each config is behind in all rows; a row that did not measure a config counts it as an octave behind its slowest.
 * Fills `configs`, in the order in which rows name them, and their sums; both have room for all that rows name. Returns how many there
 * are; SIZE_MAX without memory. */
NJ_FOR_BINDING size_t nj_behind_in_sum(const nj_behind_row *rows, size_t count, uint32_t *configs, double *sums);

#endif
