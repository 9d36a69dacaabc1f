/* The columns of a variant table. */
#ifndef NOJIT_COLUMNS_H
#define NOJIT_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NJ_COLUMNS = 8,
    NJ_POINTING_COLUMNS = 6, /* the first six point into pools: into one of so many entries each */
    NJ_KEY_COLUMNS = 4,      /* rows ascend strictly by the first four together */
};

/* Whether columns of `rows` numbers each, one after the other, keep every rule. */
bool nj_columns_right(const unsigned char *columns, size_t rows, const size_t sizes[NJ_POINTING_COLUMNS]);

#endif
