/* The numbers by which configs were measured: expressions over a call, computed and rounded to buckets. */
#ifndef NOJIT_SELECT_TUNING_KEY_H
#define NOJIT_SELECT_TUNING_KEY_H

#include "expr/machine.h"
#include "select/signatures.h"

#define NJ_FACTORS_MAX 4

/* One number of a tuning key. */
typedef struct nj_tuning_key {
    nj_program program;    /* its code is owned */
    uint16_t factor_count; /* 0 unless the program is a product of so many arguments, as most are */
    uint16_t factors[NJ_FACTORS_MAX];
} nj_tuning_key;

/* Makes the programs of a tuning's key; false with `error` filled. `made` has room for NJ_TUNING_KEYS_MAX, to be freed. */
NJ_FOR_BINDING bool nj_tuning_programs(const nj_signatures *signatures, const nj_tuning *tuning, nj_tuning_key *made, nj_error *error);
NJ_FOR_BINDING void nj_tuning_key_clear(nj_tuning_key *key);

/* A number as it is; 0 where it cannot be computed or is no int. */
NJ_FOR_BINDING int64_t nj_tuning_number(const nj_tuning_key *key, const nj_value *values);

/* A number rounded to its bucket. */
NJ_FOR_BINDING int64_t nj_bucket_of(nj_bucket bucket, int64_t value);

/* Computes the numbers of a key and rounds them: as many as a tuning has. */
NJ_FOR_BINDING void nj_tuning_round(const nj_tuning_key *key, uint32_t count, nj_bucket bucket, const nj_value *values, int64_t *rounded);

#endif
