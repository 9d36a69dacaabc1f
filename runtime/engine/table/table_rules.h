/* Rules between the parts of a table that was read. */
#ifndef NOJIT_TABLE_TABLE_RULES_H
#define NOJIT_TABLE_TABLE_RULES_H

#include "table/table_reader.h"

/* Each checks one group of rules; false with `error` filled where one is broken: the names of params, axes and configs, */
bool nj_check_names(nj_table_reader *reader, nj_error *error);

/* the pools and what the columns point to, */
bool nj_check_pools(const nj_table_reader *reader, size_t image_count, nj_error *error);

/* the tuning key. */
bool nj_check_tuning_key(const nj_table_reader *reader, nj_error *error);

#endif
