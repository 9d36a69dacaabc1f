/* The distinct types of each runtime param in a table's signatures, and the type that each signature has. */
#ifndef NOJIT_SELECT_SIGNATURES_H
#define NOJIT_SELECT_SIGNATURES_H

#include "select/param_type.h"
#include "table/table.h"

#define NJ_TYPES_MAX 60

/* The types of one runtime param. */
typedef struct {
    uint32_t place; /* index among all params */
    uint8_t type_count;
    bool tuple;   /* whether some type is a tuple */
    bool address; /* whether an int is taken as an address: all types are pointers or None */
    nj_type *types;   /* in the order of the signatures; owned */
    nj_span *spelled;
    uint64_t pointers[NJ_DTYPE_COUNT + 1]; /* for each nj_dtype: bits of the types that accept a pointer to it; NONE: all pointers */
} nj_param_types;

/* The place of a name of a table's expressions. */
typedef struct {
    nj_span name; /* its `at` is NULL in an empty cell */
    int32_t place; /* index of a param, or -1 minus the index of an axis */
} nj_known_name;

/* The types of a table's runtime params; immutable but for `ids`. */
typedef struct {
    const nj_table *table;
    nj_ids *ids;
    nj_param_types *params; /* for each runtime param */
    uint8_t *numbers;       /* for each signature and runtime param: the number of its type */
    uint32_t *bits;         /* for each signature: the sum of the widths of its ints, in bits */
    nj_known_name *known;   /* hash table of axes and params by name; an axis hides a param of the same name */
    size_t mask;
    uint64_t seed; /* varies, so that no table can force hash collisions */
} nj_signatures;

/* Reads the types of a table, and adds the constants among them to `ids`. Table and `ids` must outlive `signatures`. Returns false with
 * `error` filled. Call `nj_signatures_clear` in either case. */
NJ_FOR_BINDING bool nj_signatures_init(nj_signatures *signatures, const nj_table *table, nj_ids *ids, nj_error *error);
NJ_FOR_BINDING void nj_signatures_clear(nj_signatures *signatures);

/* Finds the place of a name. `name.at` of the result is NULL if no axis or param has the name. */
const nj_known_name *nj_signatures_find(const nj_signatures *signatures, nj_span name);

/* Reads the types of one param. Returns false with `error` filled. Call `nj_param_clear` in either case. */
NJ_FOR_BINDING bool nj_param_init(nj_param_types *param, const nj_span *types, size_t count, nj_ids *ids, nj_error *error);
NJ_FOR_BINDING void nj_param_clear(nj_param_types *param);

#endif
