/* Checks the costs of tuning tables: expressions for the estimated times of configs. */
#ifndef NOJIT_TABLE_COST_H
#define NOJIT_TABLE_COST_H

#include "base/internal.h"
#include "base/span.h"

#include <stdint.h>

/* The most configs of a block with a cost. */
#define NJ_COSTS_MAX 63

/* Reads the number of a tuning key from its name in an expression of a cost, such as 7 from `key7`. Returns false for any other
 * word, and for a number that is not below `key_count`. */
bool nj_cost_key(nj_span word, uint32_t key_count, uint32_t *key);

/* Returns whether an expression in postfix computes a number, from `multiprocessors` and the first `key_count` of `key0`, `key1` and
 * so on. */
NJ_FOR_BINDING bool nj_is_cost(nj_span words, uint32_t key_count);

#endif
