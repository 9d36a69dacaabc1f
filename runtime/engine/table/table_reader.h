/* Helpers that the readers of a table's parts share. */
#ifndef NOJIT_TABLE_TABLE_READER_H
#define NOJIT_TABLE_TABLE_READER_H

#include "json/limits.h"
#include "table/arena.h"
#include "table/sorted_names.h"
#include "table/table.h"

enum {
    NJ_TABLE_SMALL_MAX = 1024, /* params, types of a signature, hints of a set */
    NJ_TABLE_PAIRS_MAX = 64,   /* axes, derived constexprs, pairs of a config */
};

typedef struct {
    nj_table *table;
    nj_arena arena;
    nj_named *params;      /* sorted by name */
    nj_span misplaced;     /* the first case that is within no axes; empty if all are */
    uint32_t *case_marks;   /* of each case: not 0 once a block of the tuning table has it */
    uint32_t *config_marks; /* of each config: the `mark` of the array that it was last seen in */
    uint32_t mark;
} nj_table_reader;

/* Ends an array that `nj_arena_add` filled, into a pointer and a count; false with the error of the document filled. */
#define NJ_END_LIST(it, reader, mark, items, count)                                              \
    (((items) = nj_arena_end(&(reader)->arena, mark, sizeof *(items), &(count))) != NULL || nj_no_memory((it)->error))

#endif
