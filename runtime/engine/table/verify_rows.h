/* Checks that rows pack the params of their signatures, and the other rules that only `verify` checks. */
#ifndef NOJIT_TABLE_VERIFY_ROWS_H
#define NOJIT_TABLE_VERIFY_ROWS_H

#include "table/launch_facts.h"

/* A text that names a missing part; empty if none is missing. */
typedef nj_text nj_packing_fault;

/* Returns what a tensor map lacks to describe a descriptor of a type. */
NJ_FOR_BINDING nj_packing_fault nj_map_lacks(nj_span type, const nj_tensor_map *map);

/* Checks the layout and tensor maps of a row's `launch` against its signature and hints. Each leaf that is neither compiled in nor hinted
 * to be 1 has a slot of its type, or the slots of its descriptor, in order; scratch pointers come last; each tensor map describes a
 * descriptor. */
NJ_FOR_BINDING bool nj_check_packing(const nj_table *table, size_t row, const nj_launch_facts *launch, nj_error *error);

/* Checks every layout, launch, cost and row, which `nj_table_read` does not. */
NJ_FOR_BINDING bool nj_table_check(const nj_table *table, nj_error *error);

#endif
