/* Whether rows pack what their signatures say, and the other rules that only `verify` checks. */
#ifndef NOJIT_TABLE_VERIFY_ROWS_H
#define NOJIT_TABLE_VERIFY_ROWS_H

#include "table/launch_facts.h"

/* A text that names the missing part; empty if none is missing. */
typedef nj_text nj_packing_fault;

/* Says what a tensor map lacks to describe a descriptor of this type. */
NJ_FOR_BINDING nj_packing_fault nj_map_lacks(nj_span type, const nj_tensor_map *map);

/* Checks what a row packs against its signature and its hints: each leaf that is neither compiled in nor hinted to be 1 has its slot,
 * in order and of its type, or the slots of its descriptor; scratch pointers come last; each tensor map is described. `launch` is
 * the row's. */
NJ_FOR_BINDING bool nj_check_packing(const nj_table *table, size_t row, const nj_launch_facts *launch, nj_error *error);

/* Checks every layout, launch, cost and row: what reading leaves for later. */
NJ_FOR_BINDING bool nj_table_check(const nj_table *table, nj_error *error);

#endif
