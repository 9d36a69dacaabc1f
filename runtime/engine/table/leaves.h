/* Walks the leaves of a signature: its params, or their members if they are tuples. */
#ifndef NOJIT_TABLE_LEAVES_H
#define NOJIT_TABLE_LEAVES_H

#include "table/table.h"
#include "table/type_name.h"

typedef struct {
    uint32_t param;           /* its number */
    nj_span name, param_type; /* of the param */
    nj_span path, type;       /* of the leaf */
} nj_leaf;

/* Takes a leaf; false stops the walk. */
typedef bool (*nj_signature_taker)(void *context, const nj_leaf *leaf);

/* Walks the leaves of a signature, in order; false if it was stopped. */
bool nj_walk_signature(const nj_table *table, uint32_t signature, nj_signature_taker take, void *context);

/* Returns the signature of a row. */
static inline uint32_t nj_row_signature(const nj_table *table, size_t row)
{
    return table->cases[nj_table_at(table, NJ_COLUMN_CASE, row)].signature;
}

/* Returns the index of a leaf among the entries of its param's tuple; -1 if the param is no tuple. An inner tuple is an entry too, before
 * its members. */
int16_t nj_leaf_entry(const nj_leaf *leaf);

/* Returns the hint of a leaf: 1, 16, or 0 for none. */
uint8_t nj_leaf_hint(const nj_hint_set *hints, const nj_leaf *leaf);

#endif
