#include "api/kernel_select.h"

#include "launch/descriptor.h"

#include <stdlib.h>

void nj_call_match_close(nj_call_match *it)
{
    nj_match_close(&it->match);
    nj_constants_drop(&it->constants);
}

/* Fills the error of a call that no variant serves. Returns false. */
static bool refuse_call(const nj_kernel *kernel, nj_verdict verdict, const nj_fault *fault, nj_error *error)
{
    int place = (int)fault->place;
    switch (verdict) {
    case NJ_NO_MEMORY: return nj_no_memory(error);
    case NJ_DERIVED_GIVEN: return nj_refuse_argument(error, place, "a value", "expected no value for a constexpr that follows from the call");
    case NJ_WRONG_KIND: return nj_refuse_argument(error, place, "another kind", "expected an argument of a type that some variant takes");
    case NJ_UNTYPED: return nj_refuse_argument(error, place, "an address alone", "expected a pointer with a dtype: that decides the variant");
    case NJ_VALUE_MISSING: {
        nj_span axis = kernel->table.axes[fault->place].name;
        nj_note_argument(error, -1, "none", "expected a value for constexpr %s", nj_quote(axis).text);
        return false;
    }
    default:
        return nj_fail(error, NJ_ERROR_NO_VARIANT, "none", "expected a variant that serves the call; nj_kernel_explain says why each does not");
    }
}

/* Converts a bound call to the form that selection takes; false with `error` filled. */
static bool read_coerced(const nj_kernel *kernel, const nj_bound_call *call, nj_given_constants *constants, nj_coerced_call *coerced, nj_error *error)
{
    if (!nj_constants_read(kernel, call, constants, error)) {
        return false;
    }
    *coerced = (nj_coerced_call){
        .arguments = nj_call_arguments(call),
        .given = constants->given,
        .option_count = kernel->option_count,
        .options = kernel->options,
        .arch = kernel->bundle->arch,
    };
    return true;
}

bool nj_call_match_open(nj_call_match *it, const nj_kernel *kernel, const nj_kernel_device *on, const nj_bound_call *call, nj_error *error)
{
    nj_fault fault = {0};
    memset(it, 0, sizeof *it);
    it->kernel = kernel;
    if (!read_coerced(kernel, call, &it->constants, &it->coerced, error)) {
        return false;
    }
    nj_verdict verdict = nj_match_open(&it->match, &on->spec.signatures, &it->coerced, &fault);
    return verdict == NJ_SERVED || refuse_call(kernel, verdict, &fault, error);
}

bool nj_select_row(const nj_kernel *kernel, const nj_kernel_device *on, const nj_bound_call *call, size_t *row, nj_error *error)
{
    nj_given_constants constants;
    nj_coerced_call coerced;
    nj_fault fault = {0};
    bool served = false;
    if (read_coerced(kernel, call, &constants, &coerced, error)) {
        nj_verdict verdict = nj_select(&on->spec, &coerced, row, &fault);
        served = verdict == NJ_SERVED || refuse_call(kernel, verdict, &fault, error);
    }
    nj_constants_drop(&constants);
    return served;
}
