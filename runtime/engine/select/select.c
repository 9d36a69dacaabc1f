#include "select/select.h"

nj_verdict nj_select_of(const nj_spec *spec, nj_match *match, size_t *row)
{
    int64_t key[NJ_TUNING_KEYS_MAX];
    nj_preference preference = {spec->tuned, key, spec->tuning_count};
    nj_tuning_round(spec->tuning, spec->tuning_count, spec->bucket, match->call->arguments.values, key);
    return nj_best_row(match, &preference, row);
}

nj_verdict nj_select(const nj_spec *spec, const nj_coerced_call *call, size_t *row, nj_fault *fault)
{
    nj_match match;
    nj_verdict verdict = nj_match_open(&match, &spec->signatures, call, fault);
    if (verdict == NJ_SERVED) {
        verdict = nj_select_of(spec, &match, row);
    }
    nj_match_close(&match);
    return verdict;
}
