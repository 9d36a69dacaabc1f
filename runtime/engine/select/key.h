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

/* Makes the key of a call, of a value for each param and option; false if an argument is taken by no type, or a constexpr has a value
 * that no variant knows: no plan is kept for such a call. Coerces all arguments, and fills in the defaults of constexprs. */
NJ_INTERNAL bool nj_spec_key(const struct nj_spec *spec, nj_value *values, const nj_arguments *arguments, nj_key *key);

#endif
