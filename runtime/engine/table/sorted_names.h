/* Sorts names and finds them by binary search. Unlike a hash table, it stays fast for any names that an attacker may choose. */
#ifndef NOJIT_TABLE_SORTED_NAMES_H
#define NOJIT_TABLE_SORTED_NAMES_H

#include "base/span.h"

#include <stdint.h>

#define NJ_NO_NAME UINT32_MAX

typedef struct {
    nj_span name;
    uint32_t number; /* its index before sorting */
} nj_named;

/* Sorts names. Returns a name that occurs twice; NULL if there is none. */
const nj_named *nj_names_sort(nj_named *names, size_t count);

/* Returns the number of a name; NJ_NO_NAME if the sorted `names` do not contain it. */
uint32_t nj_names_find(const nj_named *names, size_t count, nj_span name);

#endif
