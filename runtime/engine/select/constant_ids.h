/* Gives ids to the strings, dtypes, functions and tuples of a kernel's variants and expressions, so that keys and programs hold 64 bits
 * for each. Each kernel has one nj_ids. Lookups take no lock, even while other threads add ids. */
#ifndef NOJIT_SELECT_CONSTANT_IDS_H
#define NOJIT_SELECT_CONSTANT_IDS_H

#include "base/internal.h"
#include "expr/machine.h"
#include "expr/value.h"
#include "table/constant.h"

typedef struct nj_ids nj_ids;

/* New; NULL without memory. */
NJ_FOR_BINDING nj_ids *nj_ids_new(void);
NJ_FOR_BINDING void nj_ids_free(nj_ids *ids);

/* Returns a constant as the value of a constexpr: none, a bool, an int of 64 bits, or NJ_TAG_OPAQUE with a double's bits or an id;
 * NJ_TAG_UNKNOWN if it has no id, or is an int beyond int64_t. */
NJ_FOR_BINDING nj_value nj_ids_find(const nj_ids *ids, const nj_constant *constant);

/* Gives a constant an id unless it has one, and fills its value as `nj_ids_find` does. All spellings of a dtype get ids, because a call
 * may use any of them. Returns false without memory. */
NJ_FOR_BINDING bool nj_ids_add(nj_ids *ids, const nj_constant *constant, nj_value *value);

/* `nj_ids_find` for a string. */
NJ_FOR_BINDING nj_value nj_ids_find_text(const nj_ids *ids, nj_span text);

/* Makes the instruction that pushes a constant as expressions see it, and gives the constant an id. Returns false for an int beyond
 * int64_t, or without memory, which also sets `starved`. */
bool nj_push_constant(nj_ids *ids, const nj_constant *constant, nj_instruction *push, bool *starved);

/* Returns whether a word of an expression is a text: a text starts with a quote. */
static inline bool nj_is_quoted(nj_span word)
{
    return *word.at == '\'' || *word.at == '"';
}

/* `nj_push_constant` for a text in quotes; also returns false if the closing quote is missing. */
bool nj_push_quoted(nj_ids *ids, nj_span word, nj_instruction *push, bool *starved);

/* Fills the ids of those spellings of a dtype that have one, at most `room`. Returns their number. */
size_t nj_ids_spellings(const nj_ids *ids, nj_span dtype, int64_t *bits, size_t room);

/* Returns whether a value is an id. */
static inline bool nj_is_id(const nj_value *value)
{
    return value->tag == NJ_TAG_OPAQUE && value->bits < 0 && value->bits >= NJ_OPAQUE_BASE;
}

/* Returns the value of a constexpr as expressions see it: a dtype or a function is its name. */
static inline nj_value nj_value_seen(nj_value constexpr_value)
{
    if (nj_is_id(&constexpr_value)) {
        constexpr_value.bits &= ~NJ_OPAQUE_KIND_MASK;
    }
    return constexpr_value;
}

#endif
