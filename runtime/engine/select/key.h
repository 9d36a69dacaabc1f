/* Keys: the facts of a call that decide which variant runs, packed into words. Calls of equal keys have the same plan. */
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

/* Makes a *coerced* call of one, which has a value for each param and option: coerces the arguments to the types of their params, and
 * fills in the defaults of constexprs. */
void nj_spec_coerce(const struct nj_spec *spec, nj_value *values, const nj_arguments *arguments);

/* Makes the key of a call, and coerces it as `nj_spec_coerce` does, in one pass for the sake of launches; false if an argument is taken by
 * no type, or a constexpr has a value that no variant knows: no plan is kept for such a call. */
NJ_FOR_BINDING bool nj_spec_key(const struct nj_spec *spec, nj_value *values, const nj_arguments *arguments, nj_key *key);

#endif
