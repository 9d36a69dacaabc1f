/* The expressions of a table. */
#ifndef NOJIT_TABLE_EXPRESSION_PROGRAMS_H
#define NOJIT_TABLE_EXPRESSION_PROGRAMS_H

#include "table/table.h"

/* Goes through every expression, in the order of the programs: those of the grid, of derived constexprs, the tuning key, and the
 * `requires` of configs that have one. Starts as {table}. */
typedef struct {
    const nj_table *table;
    uint32_t part, index;
    uint32_t config; /* whose `requires` it was; NJ_NO_CONFIG of the others */
} nj_expressions;

#define NJ_NO_CONFIG UINT32_MAX

bool nj_next_expression(nj_expressions *it, nj_span *text);

/* Checks the program of each expression; false with `error` filled. */
bool nj_check_programs(nj_table *table, nj_error *error);

/* The characters of all expressions together. */
NJ_FOR_BINDING size_t nj_expression_chars(const nj_table *table);

/* How many characters a text of UTF-8 has. */
size_t nj_chars(nj_span utf8);

#endif
