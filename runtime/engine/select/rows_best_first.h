/* The rows that serve a call, the best first: by the narrowest ints, then by the preferred config, then by the most hints, then as in
 * the table (docs/bundle-format.md, chapter 7). */
#ifndef NOJIT_SELECT_ROWS_BEST_FIRST_H
#define NOJIT_SELECT_ROWS_BEST_FIRST_H

#include "select/config_order.h"
#include "select/match.h"

/* Takes a row that serves the call; false to end the search. */
typedef bool (*nj_take_row)(void *context, size_t row);

/* Calls `take` for each row that serves the call, best first. It evaluates the expressions of a config only when its turn comes.
 * `preference` may be NULL. */
NJ_FOR_BINDING nj_verdict nj_rows_best_first(nj_match *match, const nj_preference *preference, nj_take_row take, void *context);

/* Finds the best row that serves the call. */
nj_verdict nj_best_row(nj_match *match, const nj_preference *preference, size_t *row);

/* Finds the rank of a config among those of a case, by preference; false without memory. */
NJ_FOR_BINDING bool nj_config_rank(nj_match *match, const nj_preference *preference, uint32_t case_number, uint32_t config, uint32_t *rank);

/* Returns the first row from `first` to before `end` whose column is at least `number`; `end` if there is none. The rows must ascend by
 * the column, as all do by case, and those of one case by config. */
size_t nj_first_row(const nj_table *table, nj_column column, uint32_t number, size_t first, size_t end);

#endif
