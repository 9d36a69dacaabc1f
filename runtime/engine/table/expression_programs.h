/* Walks the expressions of a table, and checks their programs. */
#ifndef NOJIT_TABLE_EXPRESSION_PROGRAMS_H
#define NOJIT_TABLE_EXPRESSION_PROGRAMS_H

#include "table/table.h"

/* A walk of every expression in the order of the programs: the grid, derived constexprs, the tuning key, then the `requires` of configs
 * that have one. Initialize it as {table}. */
typedef struct {
    const nj_table *table;
    uint32_t part, index;
    uint32_t config; /* the config of the last `requires`; NJ_NO_CONFIG after any other expression */
} nj_expressions;

#define NJ_NO_CONFIG UINT32_MAX

bool nj_next_expression(nj_expressions *it, nj_span *text);

/* Checks the program of each expression; false with `error` filled. */
bool nj_check_programs(nj_table *table, nj_error *error);

/* Returns the number of characters of all expressions together. */
NJ_FOR_BINDING size_t nj_expression_chars(const nj_table *table);

/* Returns the number of characters of a text in UTF-8. */
size_t nj_chars(nj_span utf8);

#endif
