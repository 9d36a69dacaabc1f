/* Launches of a variant with the values of its params in memory: nothing is read of arguments, and nothing chosen. */
#ifndef NOJIT_LAUNCH_LEAF_VALUES_H
#define NOJIT_LAUNCH_LEAF_VALUES_H

#include "launch/launch.h"
#include "select/constant_ids.h"
#include "table/table.h"

/* One value: a leaf of the row's signature. */
typedef struct {
    nj_span type;
    int16_t source, leaf;
    uint8_t bytes; /* that are read; 0: it is compiled in */
    uint8_t hint;  /* 0, 1 or 16 */
    uint8_t dtype;
    bool is_descriptor;
    nj_value compiled_in; /* where nothing is read: what expressions see */
} nj_leaf_value;

/* How a slot of the compiled kernel is filled. */
typedef struct {
    int16_t value; /* -1: global scratch, -2: profile scratch */
    bool is_part;  /* of a descriptor */
} nj_filling;

typedef struct {
    size_t count, hinted_count;
    nj_leaf_value *all;
    uint16_t *hinted;      /* the values with a hint */
    nj_filling *fillings;  /* of each slot */
    bool has_descriptors;
    char *texts; /* what the next two lie in */
    const char **names, **types;
} nj_leaf_values;

/* Finds what values a row's runnable takes; false with `error` filled. `ids` gets the constants that are compiled in. To be cleared,
 * whether or not this succeeds. */
bool nj_leaf_values_find(nj_leaf_values *it, const nj_table *table, size_t row, nj_ids *ids, const nj_runnable *runnable, nj_error *error);
void nj_leaf_values_clear(nj_leaf_values *it);

/* The kind of argument that a value is; NJ_ARG_NONE if it is compiled in. Sets `dtype` to that of the number or of the memory. */
nj_arg_kind nj_leaf_value_kind(const nj_leaf_value *value, nj_dtype *dtype);

/* Checks the hints that the variant was compiled for, by one mask; false with `error` filled. */
bool nj_leaf_values_check(const nj_leaf_values *it, const void *const *values, nj_error *error);

/* Makes of values what expressions see, by argument: `seen` has room for all. */
void nj_leaf_values_see(const nj_leaf_values *it, const void *const *values, nj_value *seen);

/* Fills the params of a launch, which point into `values` and `launch`; false with `error` filled. */
bool nj_leaf_values_pack(const nj_leaf_values *it, const nj_runnable *runnable, const void *const *values, nj_launch_state *launch, nj_error *error);

#endif
