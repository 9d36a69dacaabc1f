/* Launches a variant with values in memory, one for each leaf of its signature, without binding arguments or selecting. */
#ifndef NOJIT_LAUNCH_LEAF_VALUES_H
#define NOJIT_LAUNCH_LEAF_VALUES_H

#include "launch/launch.h"
#include "select/constant_ids.h"
#include "table/table.h"

/* One value to pass: a leaf of the row's signature. */
typedef struct {
    nj_span type;
    int16_t source, leaf; /* as in nj_slot_facts */
    uint8_t bytes;        /* bytes to read; 0 if the value is compiled in */
    uint8_t hint;         /* 1: the value is 1; 16: a multiple of 16; 0: no hint */
    uint8_t dtype;
    bool is_descriptor;
    nj_value compiled_in; /* the value for expressions, if `bytes` is 0 */
} nj_leaf_value;

/* How a slot of the compiled kernel is filled. */
typedef struct {
    int16_t value; /* index of the value; -1: global scratch, -2: profile scratch */
    bool is_part;  /* true if the slot takes a part of a descriptor */
} nj_filling;

typedef struct {
    size_t count, hinted_count;
    nj_leaf_value *all;
    uint16_t *hinted;      /* indices of the values with a hint */
    nj_filling *fillings;  /* one for each slot */
    bool has_descriptors;
    char *texts; /* owns `names` and `types` */
    const char **names, **types;
} nj_leaf_values;

/* Finds the values that a launch of a row takes; false with `error` filled. Adds the compiled-in constants to `ids`. The caller clears
 * `it` in either case. */
bool nj_leaf_values_find(nj_leaf_values *it, const nj_table *table, size_t row, nj_ids *ids, const nj_runnable *runnable, nj_error *error);
void nj_leaf_values_clear(nj_leaf_values *it);

/* Returns the argument kind of a value; NJ_ARG_NONE if it is compiled in. Sets `dtype` to the number's dtype, or to the dtype that the
 * pointer points to. */
nj_arg_kind nj_leaf_value_kind(const nj_leaf_value *value, nj_dtype *dtype);

/* Checks the values against the hints that the variant was compiled for; false with `error` filled. */
bool nj_leaf_values_check(const nj_leaf_values *it, const void *const *values, nj_error *error);

/* Converts values in memory to values for expressions; `seen` has one entry for each argument. */
void nj_leaf_values_see(const nj_leaf_values *it, const void *const *values, nj_value *seen);

/* Fills the params of a launch with pointers into `values` and `launch`; false with `error` filled. */
bool nj_leaf_values_pack(const nj_leaf_values *it, const nj_runnable *runnable, const void *const *values, nj_launch_state *launch, nj_error *error);

#endif
