/* Numbers the strings, dtypes, functions and tuples that some variant or expression of a kernel knows, so that keys and programs
 * hold 64 bits for each. One per kernel. Found without a lock while others are added. */
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

/* A constant as a constexpr's value: none, a bool, an int of 64 bits, or NJ_TAG_OPAQUE with a double's bits or an id.
 * NJ_TAG_UNKNOWN if no variant knows it. */
NJ_FOR_BINDING nj_value nj_ids_find(const nj_ids *ids, const nj_constant *constant);

/* As `nj_ids_find`, once the constant has a number; false without memory. The spellings of a dtype get numbers too: a call may
 * spell it in another way, and is to be found again. */
NJ_FOR_BINDING bool nj_ids_add(nj_ids *ids, const nj_constant *constant, nj_value *value);

/* `nj_ids_find` for a string. */
NJ_FOR_BINDING nj_value nj_ids_find_text(const nj_ids *ids, nj_span text);

/* Makes the instruction that pushes what expressions see of a constant, which gets an id; false for an int that no program holds,
 * or without memory, which `starved` says. */
bool nj_push_constant(nj_ids *ids, const nj_constant *constant, nj_instruction *push, bool *starved);

/* Whether a word of an expression is a text, which starts with its quote. */
static inline bool nj_is_quoted(nj_span word)
{
    return *word.at == '\'' || *word.at == '"';
}

/* `nj_push_constant` for a text in its quotes; false too where the last of them is missing. */
bool nj_push_quoted(nj_ids *ids, nj_span word, nj_instruction *push, bool *starved);

/* Lists the bits of the spellings of a dtype, as far as they have ids; returns how many there are. */
size_t nj_ids_spellings(const nj_ids *ids, nj_span dtype, int64_t *bits, size_t room);

/* Whether a value is one that has a number. */
static inline bool nj_is_id(const nj_value *value)
{
    return value->tag == NJ_TAG_OPAQUE && value->bits < 0 && value->bits >= NJ_OPAQUE_BASE;
}

/* The value that expressions see for a constexpr: for a dtype or a function its name. */
static inline nj_value nj_value_seen(nj_value constexpr_value)
{
    if (nj_is_id(&constexpr_value)) {
        constexpr_value.bits &= ~NJ_OPAQUE_KIND_MASK;
    }
    return constexpr_value;
}

#endif
