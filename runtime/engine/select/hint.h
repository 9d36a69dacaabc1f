/* Hints of arguments that Triton knows. */
#ifndef NOJIT_SELECT_HINT_H
#define NOJIT_SELECT_HINT_H

#include "expr/value.h"

/* Returns the bits of a number or an address that break a hint, 1 or 16; 0 if it holds. */
static inline uint64_t nj_hint_breaks(uint8_t hint, uint64_t bits)
{
    return hint == 1 ? bits ^ 1 : bits & 15;
}

/* Returns which hints hold for an argument: bit 0 divisible by 16, bit 1 equal to 1. */
static inline uint64_t nj_hints_of(const nj_value *value)
{
    bool number = value->tag == NJ_TAG_INT || value->tag == NJ_TAG_UINT;
    if (!number && value->tag != NJ_TAG_POINTER) {
        return 0;
    }
    uint64_t bits = (uint64_t)value->bits;
    return (uint64_t)(nj_hint_breaks(16, bits) == 0) | (uint64_t)(number && nj_hint_breaks(1, bits) == 0) << 1;
}

#endif
