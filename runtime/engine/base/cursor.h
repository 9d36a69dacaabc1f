/* Little-endian integers, and a cursor that takes parts of a buffer. Only the cursor compares sizes with the bytes left. */
#ifndef NOJIT_BASE_CURSOR_H
#define NOJIT_BASE_CURSOR_H

#include "base/span.h"

#include <stdint.h>

typedef struct {
    nj_span rest;
} nj_cursor;

/* Takes the next `size` bytes. Returns false and takes nothing if fewer are left. */
static inline bool nj_take(nj_cursor *cursor, uint64_t size, nj_span *taken)
{
    if (size > cursor->rest.size) {
        return false;
    }
    *taken = (nj_span){cursor->rest.at, (size_t)size};
    cursor->rest = (nj_span){cursor->rest.at + size, cursor->rest.size - (size_t)size};
    return true;
}

/* These need no byte swap: bundles, images and all hosts of CUDA are little-endian. */
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
