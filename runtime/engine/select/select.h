/* Selects the variant for a call. Launches from C and from Python, and the explanation of a selection, all go through these files:
 *
 *     spec.h            the fields of a kernel's keys on a device, made once
 *     key.h             the key of a call, under which its plan is cached; the rest runs once for each key
 *     match.h           matches the call against the table: finds the types, values and configs that fit
 *     serving_rules.h   finds the first rule that a row breaks
 *     rows_best_first.h lists the rows that break no rule, best first
 *     config_order.h    orders the configs, by measured problems or estimates
 */
#ifndef NOJIT_SELECT_SELECT_H
#define NOJIT_SELECT_SELECT_H

#include "select/rows_best_first.h"
#include "select/spec.h"

/* Selects the best row for a call that `nj_spec_key` has coerced. `fault` gets the part at fault in a refused call. */
NJ_FOR_BINDING nj_verdict nj_select(const nj_spec *spec, const nj_coerced_call *call, size_t *row, nj_fault *fault);

/* `nj_select` for a call that is already matched against the spec's table. */
nj_verdict nj_select_of(const nj_spec *spec, nj_match *match, size_t *row);

#endif
