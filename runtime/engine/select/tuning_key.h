/* The tuning key of a call: computes its expressions, and rounds their numbers to buckets. */
#ifndef NOJIT_SELECT_TUNING_KEY_H
#define NOJIT_SELECT_TUNING_KEY_H

#include "expr/machine.h"
#include "select/signatures.h"

#define NJ_FACTORS_MAX 4

/* One number of a tuning key. */
typedef struct nj_tuning_key {
    nj_program program;    /* its code is owned */
    uint16_t factor_count; /* number of factors if the program is a product of arguments, as most are; else 0 */
    uint16_t factors[NJ_FACTORS_MAX];
} nj_tuning_key;

/* Makes the programs of a tuning key. `made` needs room for NJ_TUNING_KEYS_MAX, zeroed. Returns false with `error` filled. Call
 * `nj_tuning_key_clear` for each in either case. */
NJ_FOR_BINDING bool nj_tuning_programs(const nj_signatures *signatures, const nj_tuning *tuning, nj_tuning_key *made, nj_error *error);
NJ_FOR_BINDING void nj_tuning_key_clear(nj_tuning_key *key);

/* Returns a number of the key before rounding; 0 if it cannot be computed or is no int. */
NJ_FOR_BINDING int64_t nj_tuning_number(const nj_tuning_key *key, const nj_value *values);

/* Returns a number rounded to its bucket. */
NJ_FOR_BINDING int64_t nj_bucket_of(nj_bucket bucket, int64_t value);

/* Computes and rounds the `count` numbers of a key. */
NJ_FOR_BINDING void nj_tuning_round(const nj_tuning_key *key, uint32_t count, nj_bucket bucket, const nj_value *values, int64_t *rounded);

#endif
