/* Checks the rules between the parts of a table. */
#ifndef NOJIT_TABLE_TABLE_RULES_H
#define NOJIT_TABLE_TABLE_RULES_H

#include "table/table_reader.h"

/* Checks the names of params, axes and configs. These functions return false with `error` filled if a rule is broken. */
bool nj_check_names(nj_table_reader *reader, nj_error *error);

/* Checks the pools, and the numbers in the columns. */
bool nj_check_pools(const nj_table_reader *reader, size_t image_count, nj_error *error);

/* Checks the tuning key. */
bool nj_check_tuning_key(const nj_table_reader *reader, nj_error *error);

#endif
