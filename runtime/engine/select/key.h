/* The key of a call: the facts that select its variant, packed into words. Calls with equal keys share a plan. */
#ifndef NOJIT_SELECT_KEY_H
#define NOJIT_SELECT_KEY_H

#include "expr/arguments.h"
#include "table/table.h"

#define NJ_KEY_WORDS_MAX 2048

typedef struct {
    uint64_t hash;
    uint32_t count;
    uint64_t words[NJ_KEY_WORDS_MAX];
} nj_key;

struct nj_spec;

/* Coerces a call in place. `values` has a value for each param and option: arguments get the types of their params, constexprs get the
 * values that programs see, and missing ones their defaults. */
void nj_spec_coerce(const struct nj_spec *spec, nj_value *values, const nj_arguments *arguments);

/* Makes the key of a call and coerces it like `nj_spec_coerce`, in one pass to keep launches fast. Returns false if no type accepts an
 * argument, or no variant knows the value of a constexpr: nojit caches no plan for such a call. */
NJ_FOR_BINDING bool nj_spec_key(const struct nj_spec *spec, nj_value *values, const nj_arguments *arguments, nj_key *key);

#endif
