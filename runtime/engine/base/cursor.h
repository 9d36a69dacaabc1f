/* Little-endian integers, and a cursor that hands out parts of a buffer: the one place where sizes are compared with what is
 * left. */
#ifndef NOJIT_BASE_CURSOR_H
#define NOJIT_BASE_CURSOR_H

#include "base/span.h"

#include <stdint.h>

typedef struct {
    nj_span rest;
} nj_cursor;

/* Takes the next `size` bytes; false, and nothing taken, if fewer are left. */
static inline bool nj_take(nj_cursor *cursor, uint64_t size, nj_span *taken)
{
    if (size > cursor->rest.size) {
        return false;
    }
    *taken = (nj_span){cursor->rest.at, (size_t)size};
    cursor->rest = (nj_span){cursor->rest.at + size, cursor->rest.size - (size_t)size};
    return true;
}

/* The hosts of CUDA are little-endian, as files and images are. */
static inline uint16_t nj_u16(const unsigned char *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint32_t nj_u32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t nj_u64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

#endif
