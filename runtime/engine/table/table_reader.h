/* The state that the readers of a table's parts share. */
#ifndef NOJIT_TABLE_TABLE_READER_H
#define NOJIT_TABLE_TABLE_READER_H

#include "json/limits.h"
#include "table/arena.h"
#include "table/sorted_names.h"
#include "table/table.h"

enum {
    NJ_TABLE_SMALL_MAX = 1024, /* the most params, types of a signature, hints of a set */
    NJ_TABLE_PAIRS_MAX = 64,   /* the most axes, derived constexprs, settings of a config */
};

typedef struct {
    nj_table *table;
    nj_arena arena;
    nj_named *params;      /* sorted by name */
    nj_span misplaced;     /* JSON of the first case whose places do not match the axes; empty if there is none */
    uint32_t *case_marks;   /* for each case: not 0 once a block of the tuning table contains it */
    uint32_t *config_marks; /* for each config: the `mark` of the last array that contains it */
    uint32_t mark;
} nj_table_reader;

/* Ends an array that `nj_arena_add` filled, and fills its pointer and count. False with the error of the document filled. */
#define NJ_END_LIST(it, reader, mark, items, count)                                              \
    (((items) = nj_arena_end(&(reader)->arena, mark, sizeof *(items), &(count))) != NULL || nj_no_memory((it)->error))

#endif
