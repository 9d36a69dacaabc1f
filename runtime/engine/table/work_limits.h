/* Limits of what calls and checks go through for a table, however well it compresses: time in proportion to the file. */
#ifndef NOJIT_TABLE_WORK_LIMITS_H
#define NOJIT_TABLE_WORK_LIMITS_H

#include "table/table.h"

enum {
    NJ_EXPRESSION_CHARS_MAX = 65536, /* of all expressions of a table together */
    NJ_EXPRESSION_SHARE = 4,         /* all tables of a bundle may have as many more as this part of the file's bytes */
    NJ_TYPED_WORK_MAX = 1 << 22,     /* rows times the characters of the longest signature */
    NJ_CHOOSING_WORK_MAX = 1 << 18,  /* characters of the expressions that choose a variant, for each config and point of types */
    NJ_NAMING_WORK_MAX = 1 << 22,    /* rows times the characters of those that name a type axis */
    NJ_SMALL_WORK = 65536,           /* bytes of a table, times its rows or configs: such a table is within each limit */
};

/* Checks that a table of so many bytes keeps them; false with `error` filled. */
bool nj_check_work(const nj_table *table, size_t raw_bytes, nj_error *error);

#endif
