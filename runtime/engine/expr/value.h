/* The value of an argument, a constexpr or an expression. */
#ifndef NOJIT_EXPR_VALUE_H
#define NOJIT_EXPR_VALUE_H

#include "base/dtype.h"

#include <string.h>

/* The kinds of values. The results of programs have the tags NONE to OPAQUE. */
typedef enum {
    NJ_TAG_MISSING = 0,
    NJ_TAG_NONE = 1,
    NJ_TAG_BOOL = 2,
    NJ_TAG_INT = 3,
    NJ_TAG_OPAQUE = 4, /* a double's bits, or the id of an interned value; their ranges are disjoint: see NJ_OPAQUE_BASE */
    NJ_TAG_POINTER = 5,
    NJ_TAG_UINT = 6,    /* an int from 2^63 to 2^64 - 1 */
    NJ_TAG_UNKNOWN = 7, /* a value that no key can hold, so that no plan is cached for its calls */
    NJ_TAG_TUPLE = 8,   /* the place of its members: see nj_tuple */
    NJ_TAG_DESCRIPTOR = 9, /* an index into the descriptors of nj_arguments */
    NJ_TAG_CONSTANT = 10,  /* the id of an argument that is a string, a dtype or a function */
} nj_tag;

/* Ids of interned values start here, among the bits of NaNs, which no double has after `nj_opaque_double`. Two bits of an id
 * hold its kind: a string, a dtype, a function or a tuple. Constexprs of different kinds differ, but in expressions a dtype or a
 * function is its name. */
#define NJ_OPAQUE_BASE (-((int64_t)1 << 50))
#define NJ_OPAQUE_KIND_SHIFT 40
#define NJ_OPAQUE_KIND_MASK ((int64_t)3 << NJ_OPAQUE_KIND_SHIFT)

typedef struct {
    int64_t bits; /* int, bool as 0 or 1, address, a double's bits, or an id */
    uint8_t tag;
    uint8_t dtype; /* the nj_dtype that a pointer points to */
} nj_value;

static inline double nj_as_double(int64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static inline int64_t nj_double_bits(double number)
{
    int64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

/* Returns the bits of a float constexpr, the same for every NaN. */
static inline int64_t nj_opaque_double(double number)
{
    return nj_double_bits(number != number ? __builtin_nan("") : number);
}

#endif
