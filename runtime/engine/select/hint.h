/* Hints of arguments that Triton knows. */
#ifndef NOJIT_SELECT_HINT_H
#define NOJIT_SELECT_HINT_H

#include "expr/value.h"

/* Returns which hints hold for an argument: bit 0 divisible by 16, bit 1 equal to 1. */
static inline uint64_t nj_hints_of(const nj_value *value)
{
    bool number = value->tag == NJ_TAG_INT || value->tag == NJ_TAG_UINT;
    if (!number && value->tag != NJ_TAG_POINTER) {
        return 0;
    }
    return (uint64_t)((value->bits & 15) == 0) | (uint64_t)(number && value->bits == 1) << 1;
}

#endif
