/* Selecting the variant for a call: the one way to a row, for launches in C and in Python, and for who explains them. */
#ifndef NOJIT_SELECT_SELECT_H
#define NOJIT_SELECT_SELECT_H

#include "select/choose.h"
#include "select/spec.h"

/* Selects the row that serves a call, which `nj_spec_key` has coerced. `fault` says where a call is wrong that is refused. */
NJ_INTERNAL nj_verdict nj_select(const nj_spec *spec, const nj_passed *call, size_t *row, nj_fault *fault);

/* As `nj_select`, for a call that is set against the spec's table already. */
nj_verdict nj_select_of(const nj_spec *spec, nj_choice *choice, size_t *row);

/* Computes the numbers of a tuning key, which order the configs, and rounds them: as many as a tuning has. */
NJ_INTERNAL void nj_tuning_round(const nj_tuning_key *key, uint32_t count, nj_bucket bucket, const nj_value *values, int64_t *rounded);

#endif
