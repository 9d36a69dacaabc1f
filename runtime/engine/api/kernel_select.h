/* Matches a call of a kernel against its variants. */
#ifndef NOJIT_API_KERNEL_SELECT_H
#define NOJIT_API_KERNEL_SELECT_H

#include "api/kernel_call.h"
#include "select/select.h"

/* The state of matching a call against a kernel's table. */
typedef struct {
    const nj_kernel *kernel;
    nj_given_constants constants;
    nj_coerced_call coerced;
    nj_match match;
} nj_call_match;

/* Matches a call against the kernel's table; false with `error` filled. The caller calls `nj_call_match_close` in either case. */
bool nj_call_match_open(nj_call_match *it, const nj_kernel *kernel, const nj_kernel_device *on, const nj_bound_call *call, nj_error *error);
void nj_call_match_close(nj_call_match *it);

/* Selects the row that serves a bound call, whose arguments `nj_spec_key` has already coerced; false with `error` filled. */
bool nj_select_row(const nj_kernel *kernel, const nj_kernel_device *on, const nj_bound_call *call, size_t *row, nj_error *error);

#endif
