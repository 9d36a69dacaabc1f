/* The arguments of a call, as selection, expressions and launches take them. */
#ifndef NOJIT_EXPR_ARGUMENTS_H
#define NOJIT_EXPR_ARGUMENTS_H

#include "expr/value.h"
#include "nojit.h"

/* Params and options of a kernel together. */
#define NJ_ARGUMENTS_MAX 512
/* Members of all tuples of a call together, and of one type, tuples in tuples counted too. */
#define NJ_LEAVES_MAX 256
#define NJ_DESCRIPTORS_MAX 16

/* The messages for a kernel or a call that has more of them. */
#define NJ_ARGUMENTS_RULE "expected at most %d params and options"
#define NJ_LEAVES_RULE "expected at most %d members of tuples in one call"
#define NJ_DESCRIPTORS_RULE "expected at most %d tensor descriptors in one call"

/* The messages for a call whose arguments do not bind to the params. */
#define NJ_POSITIONAL_RULE "expected at most %zu positional arguments"
#define NJ_ONCE_RULE "expected one value, by position or by name"
#define NJ_VALUE_RULE "expected a value"

/* A tensor descriptor of the host. */
typedef struct {
    nj_value base; /* a pointer */
    int64_t shape[NJ_DESCRIPTOR_RANK_MAX];
    int64_t strides[NJ_DESCRIPTOR_RANK_MAX]; /* in elements */
    uint32_t block[NJ_DESCRIPTOR_RANK_MAX];
    uint16_t box[NJ_DESCRIPTOR_RANK_MAX];  /* elements that one copy takes of each dimension, as many as a block has; 0: the block */
    uint8_t steps[NJ_DESCRIPTOR_RANK_MAX]; /* distance of these elements, in elements; 0: 1 */
    uint8_t rank;
    bool pads_nan;
    bool rounds_tf32;
} nj_descriptor;

typedef struct {
    const nj_value *values;           /* as many as the runnable has arguments */
    const nj_value *leaves;           /* members of tuples; those of a tuple in a tuple follow it */
    const nj_descriptor *descriptors; /* that values and leaves count */
} nj_arguments;

/* A tuple's value: where its entries start in `leaves`, how many there are, and how many of them are its own members. */
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
