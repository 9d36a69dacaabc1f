/* A row of a variant table as a runnable takes it: what its image must be, what fills its parameters, the programs of its grid. */
#ifndef NOJIT_LAUNCH_ROW_FACTS_H
#define NOJIT_LAUNCH_ROW_FACTS_H

#include "image/check.h"
#include "launch/runnable.h"
#include "select/constant_ids.h"
#include "table/launch_facts.h"

/* The table of a row, and how its kernel is called. */
typedef struct {
    const nj_table *table;
    nj_ids *ids;           /* gets every value that a program of the grid can hold */
    int arch;              /* what ``arch`` stands for in expressions: 90 */
    size_t argument_count; /* params and options together */
} nj_row_home;

/* A row, read for a launch. The entry lacks the image's arch, the facts lack the function and the device. */
typedef struct {
    nj_launch_facts launch;
    nj_expected_image entry;
    nj_runnable_facts facts;
    nj_slot_facts slots[NJ_ARGUMENTS_MAX];
    nj_map_facts maps[NJ_DESCRIPTORS_MAX];
} nj_row_facts;

/* Reads a row, and checks the params that it packs. False with `error` filled. The caller closes the facts, whether or not this
 * succeeds. */
NJ_FOR_BINDING bool nj_row_facts_read(const nj_row_home *home, size_t row, nj_row_facts *facts, nj_error *error);
NJ_FOR_BINDING void nj_row_facts_close(nj_row_facts *facts);

/* Returns how many bytes a parameter of a type takes, 0 if no single parameter has such a type. `dtype` says how they are made. */
NJ_FOR_BINDING uint32_t nj_param_bytes(nj_span type, uint8_t *dtype);

/* Takes a constexpr or an option and its value; false stops the walk. */
typedef bool (*nj_take_constexpr)(void *context, nj_span name, const nj_constant *value);

/* Goes through what each constexpr and option is for a row: a name may come twice, and the last has the last word. */
NJ_FOR_BINDING bool nj_row_constexprs(const nj_table *table, size_t row, nj_take_constexpr take, void *context);

#endif
