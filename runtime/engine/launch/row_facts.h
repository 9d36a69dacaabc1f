/* Reads a row of a variant table for a runnable: the expected image, the sources of the kernel's params, the programs of the grid. */
#ifndef NOJIT_LAUNCH_ROW_FACTS_H
#define NOJIT_LAUNCH_ROW_FACTS_H

#include "image/check.h"
#include "launch/runnable.h"
#include "select/constant_ids.h"
#include "table/launch_facts.h"

/* The context of a row: its table and its kernel's facts. */
typedef struct {
    const nj_table *table;
    nj_ids *ids;           /* ids of constants; reading a row adds those that the grid's programs use */
    int arch;              /* the value of ``arch`` in expressions, such as 90 */
    size_t argument_count; /* number of params and options */
} nj_row_home;

/* The facts of a row. `entry` does not have the image's arch, and `facts` have neither function nor device; the caller sets them. */
typedef struct {
    nj_launch_facts launch;
    nj_expected_image entry;
    nj_runnable_facts facts;
    nj_slot_facts slots[NJ_ARGUMENTS_MAX];
    nj_map_facts maps[NJ_DESCRIPTORS_MAX];
} nj_row_facts;

/* Reads a row and checks its packed params. False with `error` filled. The caller closes the facts in either case. */
NJ_FOR_BINDING bool nj_row_facts_read(const nj_row_home *home, size_t row, nj_row_facts *facts, nj_error *error);
NJ_FOR_BINDING void nj_row_facts_close(nj_row_facts *facts);

/* Returns the bytes of a kernel param of a type; 0 if no single param has this type. Sets `dtype` to the dtype of its bytes. */
NJ_FOR_BINDING uint32_t nj_param_bytes(nj_span type, uint8_t *dtype);

/* A visitor of constexprs and options; it returns false to stop the walk. */
typedef bool (*nj_take_constexpr)(void *context, nj_span name, const nj_constant *value);

/* Calls `take` with each constexpr and option of a row. If a name comes more than once, its last value holds. */
NJ_FOR_BINDING bool nj_row_constexprs(const nj_table *table, size_t row, nj_take_constexpr take, void *context);

#endif
