/* Selecting the variant for a call: the one way to a row, for launches in C and in Python, and for who explains them.
 *
 *     spec.h            what of a call decides: made once for a kernel on a device
 *     key.h             these facts of one call, by which its plan is cached; the rest runs once for each key
 *     match.h           the call set against the table: which types, values and configs fit
 *     serving_rules.h   the rules, one by one: which one refuses a row
 *     rows_best_first.h the rows that no rule refuses, the best first
 *     config_order.h    which config is better, by measured problems or estimates
 */
#ifndef NOJIT_SELECT_SELECT_H
#define NOJIT_SELECT_SELECT_H

#include "select/rows_best_first.h"
#include "select/spec.h"

/* Selects the row that serves a call, which `nj_spec_key` has coerced. `fault` says where a call is wrong that is refused. */
NJ_FOR_BINDING nj_verdict nj_select(const nj_spec *spec, const nj_coerced_call *call, size_t *row, nj_fault *fault);

/* As `nj_select`, for a call that is set against the spec's table already. */
nj_verdict nj_select_of(const nj_spec *spec, nj_match *match, size_t *row);

#endif
