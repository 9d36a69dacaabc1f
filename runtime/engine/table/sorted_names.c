#include "table/sorted_names.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const nj_named *left = a, *right = b;
    return nj_span_compare(left->name, right->name);
}

const nj_named *nj_names_sort(nj_named *names, size_t count)
{
    size_t sorted = 1;
    /* builds write most names in order */
    while (sorted < count && compare(&names[sorted - 1], &names[sorted]) < 0) {
        sorted++;
    }
    if (sorted >= count) {
        return NULL;
    }
    qsort(names, count, sizeof *names, compare);
    for (size_t i = 1; i < count; i++) {
        if (nj_span_equal(names[i - 1].name, names[i].name)) {
            return &names[i];
        }
    }
    return NULL;
}

uint32_t nj_names_find(const nj_named *names, size_t count, nj_span name)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = nj_span_compare(names[middle].name, name);
        if (order == 0) {
            return names[middle].number;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return NJ_NO_NAME;
}
