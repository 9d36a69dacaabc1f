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
struct nj_tuning_key;

/* Makes the key of a call, of a value for each param and option; false if an argument is taken by no type, or a constexpr has a value
 * that no variant knows: no plan is kept for such a call. Coerces all arguments, and fills in the defaults of constexprs. */
NJ_INTERNAL bool nj_spec_key(const struct nj_spec *spec, nj_value *values, const nj_arguments *arguments, nj_key *key);

/* A number of the tuning key as it is, and rounded; 0 where it cannot be computed or is no int. */
NJ_INTERNAL int64_t nj_tuning_number(const struct nj_tuning_key *key, const nj_value *values);
NJ_INTERNAL int64_t nj_bucket_of(nj_bucket bucket, int64_t value);

#endif
