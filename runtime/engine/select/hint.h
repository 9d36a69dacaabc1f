/* Checks which hints hold for an argument, and finds hint misses. */
#ifndef NOJIT_SELECT_HINT_H
#define NOJIT_SELECT_HINT_H

#include "select/signatures.h"

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

/* Returns the argument at the path of a leaf, x or x.1.0; NULL if the call has none there. */
const nj_value *nj_argument_at(const nj_signatures *signatures, const nj_arguments *arguments, nj_span path);

/* Returns whether a hint holds for a call. */
NJ_FOR_BINDING bool nj_hint_holds(const nj_signatures *signatures, const nj_arguments *arguments, const nj_hint *hint);

/* Finds the hint set of a hint miss by a call that `row` serves: at least half of the set's hints hold, not all, and of all such sets
 * the fewest fail. Returns false if there is none. */
NJ_FOR_BINDING bool nj_near_hints(const nj_signatures *signatures, const nj_arguments *arguments, size_t row, uint32_t *hint_set);

#endif
