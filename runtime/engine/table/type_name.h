/* Reads the types of signatures (docs/bundle-format.md, chapter 7). Each type has one spelling. */
#ifndef NOJIT_TABLE_TYPE_NAME_H
#define NOJIT_TABLE_TYPE_NAME_H

#include "base/internal.h"
#include "expr/arguments.h"
#include "table/constant.h"

enum {
    NJ_PATH_BYTES_MAX = 256, /* of a leaf's path: a name, then a dot and at most three digits for each tuple */
};

/* Returns whether a text is a type in its one spelling. */
NJ_FOR_BINDING bool nj_is_type(nj_span text);

/* The functions below require valid types. */
static inline bool nj_is_tuple_type(nj_span type)
{
    return type.size > 0 && type.at[0] == '(';
}

static inline bool nj_is_constant_type(nj_span type)
{
    return type.size > 0 && type.at[0] == '=';
}

/* Returns whether the compiled kernel has no parameter for a type: None, or a constant. */
static inline bool nj_is_compiled_in(nj_span type)
{
    return nj_is_constant_type(type) || nj_span_is(type, "none");
}

NJ_FOR_BINDING bool nj_is_descriptor_name(nj_span type);

typedef struct {
    nj_span element; /* the text of its dtype */
    nj_dtype dtype;
    uint32_t rank, block[NJ_DESCRIPTOR_RANK_MAX];
} nj_descriptor_name;

NJ_FOR_BINDING nj_descriptor_name nj_descriptor_parts(nj_span type);

/* Takes the next member from `rest`, which starts as a tuple's type without its outer parentheses; false if there is none. */
NJ_FOR_BINDING bool nj_next_member(nj_span *rest, nj_span *member);

/* Escapes the text of a constant: every byte but ASCII letters, digits and "_.:/-" becomes %XX. `escaped` needs room for three times the
 * bytes of the text. Returns the number of bytes written. */
NJ_FOR_BINDING size_t nj_escape(nj_span text, char *escaped);

/* Reads the value of a constant, and decodes its texts into `decoded`, which needs as much room as the type. Returns false if the type is
 * no constant in its one spelling. */
NJ_FOR_BINDING bool nj_type_constant(nj_span type, unsigned char *decoded, nj_constant *value);

/* Takes a leaf and its path, such as "x.1.0". False stops the walk. */
typedef bool (*nj_leaf_taker)(void *context, nj_span path, nj_span type);

/* Walks the leaves of a type, in order; false if it was stopped. */
NJ_FOR_BINDING bool nj_walk_leaves(nj_span type, nj_span name, nj_leaf_taker take, void *context);

#endif
