/* Names, sorted for look-up. Sorting and binary search take no longer however the names are chosen. */
#ifndef NOJIT_TABLE_SORTED_NAMES_H
#define NOJIT_TABLE_SORTED_NAMES_H

#include "base/span.h"

#include <stdint.h>

#define NJ_NO_NAME UINT32_MAX

typedef struct {
    nj_span name;
    uint32_t number; /* its place before the names were sorted */
} nj_named;

/* Sorts names. Returns one that comes twice; NULL if each comes once. */
const nj_named *nj_names_sort(nj_named *names, size_t count);

/* The number of a name; NJ_NO_NAME if it is none of the sorted `names`. */
uint32_t nj_names_find(const nj_named *names, size_t count, nj_span name);

#endif
