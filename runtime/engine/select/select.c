#include "select/select.h"

void nj_tuning_round(const nj_tuning_key *key, uint32_t count, nj_bucket bucket, const nj_value *values, int64_t *rounded)
{
    for (uint32_t i = 0; i < count; i++) {
        rounded[i] = nj_bucket_of(bucket, nj_tuning_number(&key[i], values));
    }
}

nj_verdict nj_select_of(const nj_spec *spec, nj_choice *choice, size_t *row)
{
    int64_t key[NJ_TUNING_KEYS_MAX];
    nj_preference preference = {spec->tuned, key, spec->tuning_count};
    nj_tuning_round(spec->tuning, spec->tuning_count, spec->bucket, choice->call->arguments.values, key);
    return nj_choose(choice, &preference, row);
}

nj_verdict nj_select(const nj_spec *spec, const nj_passed *call, size_t *row, nj_fault *fault)
{
    nj_choice choice;
    nj_verdict verdict = nj_choice_open(&choice, &spec->typing, call, fault);
    if (verdict == NJ_SERVED) {
        verdict = nj_select_of(spec, &choice, row);
    }
    nj_choice_close(&choice);
    return verdict;
}
