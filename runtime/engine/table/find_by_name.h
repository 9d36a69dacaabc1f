/* Finds params, axes, settings of configs and built values of constexprs in a table by name. */
#ifndef NOJIT_TABLE_FIND_BY_NAME_H
#define NOJIT_TABLE_FIND_BY_NAME_H

#include "table/table.h"

/* Returns the index of a param; the number of params if none has the name. */
size_t nj_param_place(const nj_table *table, nj_span name);

/* Returns whether a name is that of an axis. */
bool nj_is_axis(const nj_table *table, nj_span name);

/* Returns the value of the last setting with a name; NULL if there is none. */
const nj_constant *nj_setting_value(const nj_setting *settings, uint32_t count, nj_span name);

/* Returns the value that a config itself gives an option, or else a constexpr, of a name; NULL if it gives none. */
const nj_constant *nj_config_value(const nj_config *config, nj_span name);

/* Fills at most `room` of the values that a constexpr was built with: those of the matrix, of configs, and the function's default.
 * Returns the number of all of them. */
size_t nj_built_values(const nj_table *table, size_t place, const nj_constant **built, size_t room);

#endif
