/* The types that a param can have, and whether they take a value. */
#ifndef NOJIT_SELECT_PARAM_TYPE_H
#define NOJIT_SELECT_PARAM_TYPE_H

#include "base/error.h"
#include "expr/arguments.h"
#include "select/constant_ids.h"

#define NJ_BIT(tag) ((uint16_t)(1u << (tag)))

typedef struct nj_type {
    uint16_t tags; /* bit set of nj_tag: the values that it may take */
    uint8_t pointee; /* of a pointer or descriptor: the nj_dtype that it points to */
    uint8_t rank; /* of a descriptor */
    bool constant; /* whether it takes one value, `low` */
    uint8_t width; /* of an int, in bits; of a tuple none */
    uint16_t count; /* of a tuple: its members */
    uint16_t entry_count; /* of a tuple: `entries`, laid out as the leaves of a call */
    int64_t low; /* range of ints */
    int64_t high;
    uint32_t block[NJ_DESCRIPTOR_RANK_MAX];
    struct nj_type *entries; /* owned; those of a tuple in it follow that tuple, whose own are NULL */
} nj_type;

/* Reads Triton's spelling; false with `error` filled. A type that this runtime cannot pass takes nothing. `ids` gets what a
 * constant is. `nj_type_clear` is due in either case. */
bool nj_type_read(nj_span text, nj_ids *ids, nj_type *type, nj_error *error);
void nj_type_clear(nj_type *type);

/* The dtype to which a type such as `*fp16` or `*kfp16` (const) points; NJ_DTYPE_COUNT if the text is no such type. */
nj_dtype nj_pointee_of(nj_span text);

/* Reads `tensordesc<fp16[128,64]>`: a type that takes nothing if it is not spelled so. */
nj_type nj_descriptor_type(nj_span text);

/* The width of an int's type in bits, of all ints of a tuple together; 0 for any other. */
uint32_t nj_type_bits(const nj_type *type);

/* `nj_type_accepts` for tuples and descriptors. */
bool nj_type_accepts_other(const nj_type *type, const nj_value *value, const nj_arguments *arguments);

/* Whether the type takes the value of an argument that is no pointer: those are told apart by what they point to. */
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
