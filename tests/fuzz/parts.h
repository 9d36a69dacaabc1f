/* A table laid out of its JSON and its columns: right lengths are put around what may be wrong. */
#ifndef NOJIT_FUZZ_PARTS_H
#define NOJIT_FUZZ_PARTS_H

#include "table/table.h"

#include <stdlib.h>

/* Lays out a table whose columns are the last of the bytes, to be freed; its `at` is NULL where there are too few. */
static inline nj_span fuzz_lay_out(nj_span parts, size_t rows)
{
    size_t wide = rows * NJ_COLUMN_COUNT * sizeof(uint32_t);
    if (wide > parts.size) {
        return (nj_span){NULL, 0};
    }
    uint32_t length = (uint32_t)(parts.size - wide);
    size_t padded = ((size_t)length + 3) / 4 * 4, size = sizeof length + padded + wide;
    unsigned char *raw = malloc(size);
    if (raw == NULL) {
        abort();
    }
    memset(raw, ' ', size);
    memcpy(raw, &length, sizeof length);
    memcpy(raw + sizeof length, parts.at, length);
    memcpy(raw + sizeof length + padded, parts.at + length, wide);
    return (nj_span){raw, size};
}

#endif
