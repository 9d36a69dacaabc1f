/* The arguments of a call, in the form that selection, expressions and launches take. */
#ifndef NOJIT_EXPR_ARGUMENTS_H
#define NOJIT_EXPR_ARGUMENTS_H

#include "expr/value.h"
#include "nojit.h"

/* The most params and options of a kernel together. */
#define NJ_ARGUMENTS_MAX 512
/* The most members of all tuples of a call together, and of one tuple type, inner tuples included. */
#define NJ_LEAVES_MAX 256
#define NJ_DESCRIPTORS_MAX 16

/* The messages for a kernel or a call that exceeds these limits. */
#define NJ_ARGUMENTS_RULE "expected at most %d params and options"
#define NJ_LEAVES_RULE "expected at most %d members of tuples in one call"
#define NJ_DESCRIPTORS_RULE "expected at most %d tensor descriptors in one call"

/* The messages for a call whose arguments do not bind to the params. */
#define NJ_POSITIONAL_RULE "expected at most %zu positional arguments"
#define NJ_ONCE_RULE "expected one value, by position or by name"
#define NJ_VALUE_RULE "expected a value"

/* A tensor descriptor that the host passes. */
typedef struct {
    nj_value base; /* a pointer */
    int64_t shape[NJ_DESCRIPTOR_RANK_MAX];
    int64_t strides[NJ_DESCRIPTOR_RANK_MAX]; /* in elements */
    uint32_t block[NJ_DESCRIPTOR_RANK_MAX];
    uint16_t box[NJ_DESCRIPTOR_RANK_MAX];  /* elements per copy in each dimension of the block; 0: the whole block */
    uint8_t steps[NJ_DESCRIPTOR_RANK_MAX]; /* distance between these elements, in elements; 0 means 1 */
    uint8_t rank;
    bool pads_nan;
    bool rounds_tf32;
} nj_descriptor;

typedef struct {
    const nj_value *values;           /* as many as the runnable has arguments */
    const nj_value *leaves;           /* members of tuples; those of an inner tuple follow it */
    const nj_descriptor *descriptors; /* values and leaves refer to them by index */
} nj_arguments;

/* Returns the bits of a tuple's value: the index of its first entry in `leaves`, the number of its entries, and the number of those that
 * are its own members. */
static inline int64_t nj_tuple(uint16_t start, uint16_t entries, uint16_t members)
{
    return (int64_t)start | (int64_t)entries << 16 | (int64_t)members << 32;
}

static inline uint16_t nj_tuple_start(const nj_value *value)
{
    return (uint16_t)value->bits;
}

static inline uint16_t nj_tuple_entries(const nj_value *value)
{
    return (uint16_t)(value->bits >> 16);
}

static inline uint16_t nj_tuple_members(const nj_value *value)
{
    return (uint16_t)(value->bits >> 32);
}

#endif
