/* Limits the work of calls and checks for a table, so that a small file that decompresses to a large table cannot make them slow. */
#ifndef NOJIT_TABLE_WORK_LIMITS_H
#define NOJIT_TABLE_WORK_LIMITS_H

#include "table/table.h"

enum {
    NJ_EXPRESSION_CHARS_MAX = 65536, /* characters of all expressions of a table together */
    NJ_EXPRESSION_SHARE = 4,         /* all tables of a bundle together may have one more character for each so many bytes of the file */
    NJ_TYPED_WORK_MAX = 1 << 22,     /* rows times the characters of the longest signature */
    NJ_CHOOSING_WORK_MAX = 1 << 18,  /* characters of `requires` and derived constexprs, times configs and points of type axes */
    NJ_NAMING_WORK_MAX = 1 << 22,    /* rows times the characters of such expressions that name a type axis */
    NJ_SMALL_WORK = 65536,           /* bytes of a table times its rows or configs; below this the other limits are not checked */
};

/* Checks that a table of `raw_bytes` is within these limits; false with `error` filled. */
bool nj_check_work(const nj_table *table, size_t raw_bytes, nj_error *error);

#endif
