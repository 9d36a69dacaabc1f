/* The types of params, and whether they accept a value. */
#ifndef NOJIT_SELECT_PARAM_TYPE_H
#define NOJIT_SELECT_PARAM_TYPE_H

#include "base/error.h"
#include "expr/arguments.h"
#include "select/constant_ids.h"

#define NJ_BIT(tag) ((uint16_t)(1u << (tag)))

typedef struct nj_type {
    uint16_t tags; /* bit set of nj_tag: the tags of the values that it accepts */
    uint8_t pointee; /* of a pointer or descriptor: the nj_dtype that it points to */
    uint8_t rank; /* of a descriptor */
    bool constant; /* whether it accepts one value only, `low` */
    uint8_t width; /* of an int, in bits; 0 for any other */
    uint16_t count; /* of a tuple: number of members */
    uint16_t entry_count; /* of a tuple: number of `entries`, which are laid out like the leaves of a call */
    int64_t low; /* range of ints */
    int64_t high;
    uint32_t block[NJ_DESCRIPTOR_RANK_MAX];
    struct nj_type *entries; /* owned; the entries of an inner tuple follow it in this array, and its own pointer is NULL */
} nj_type;

/* Reads a type in Triton's spelling, and adds the value of a constant to `ids`. A type that nojit cannot pass accepts no value. Returns
 * false with `error` filled. Call `nj_type_clear` in either case. */
bool nj_type_read(nj_span text, nj_ids *ids, nj_type *type, nj_error *error);
void nj_type_clear(nj_type *type);

/* Returns the dtype to which a type such as `*fp16` or `*kfp16` (const) points; NJ_DTYPE_COUNT if the text is no such type. */
nj_dtype nj_pointee_of(nj_span text);

/* Reads a type such as `tensordesc<fp16[128,64]>`. Any other text gives a type that accepts no value. */
nj_type nj_descriptor_type(nj_span text);

/* Returns the width of an int type in bits, or the sum of the widths of a tuple's ints; 0 for any other type. */
uint32_t nj_type_bits(const nj_type *type);

/* `nj_type_accepts` for tuples and descriptors. */
bool nj_type_accepts_other(const nj_type *type, const nj_value *value, const nj_arguments *arguments);

/* Returns whether a type accepts an argument that is no pointer; `pointers` of nj_param_types serves for pointers. */
static inline bool nj_type_accepts(const nj_type *type, const nj_value *value, const nj_arguments *arguments)
{
    if ((type->tags & NJ_BIT(value->tag)) == 0) {
        return false;
    }
    if (value->tag == NJ_TAG_INT) {
        return value->bits >= type->low && value->bits <= type->high;
    }
    if (type->constant) {
        return value->bits == type->low;
    }
    return value->tag < NJ_TAG_TUPLE || nj_type_accepts_other(type, value, arguments);
}

#endif
