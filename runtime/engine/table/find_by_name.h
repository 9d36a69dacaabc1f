/* Finds things of a table by their names: params, axes, what configs set, and what constexprs were built with. */
#ifndef NOJIT_TABLE_FIND_BY_NAME_H
#define NOJIT_TABLE_FIND_BY_NAME_H

#include "table/table.h"

/* The place of a param; the number of params if none has the name. */
size_t nj_param_place(const nj_table *table, nj_span name);

/* Whether a name is that of an axis. */
bool nj_is_axis(const nj_table *table, nj_span name);

/* The value of a name among settings, the last of its name; NULL if there is none. */
const nj_constant *nj_setting_value(const nj_setting *settings, uint32_t count, nj_span name);

/* The value of a constexpr or an option that a config sets itself, an option's before a constexpr's; NULL if it sets none. */
const nj_constant *nj_config_value(const nj_config *config, nj_span name);

/* Lists the values that a constexpr was built with, in the matrix and in configs, and the function's default; returns how many
 * there are, at most `room` of which are listed. */
size_t nj_built_values(const nj_table *table, size_t place, const nj_constant **built, size_t room);

#endif
