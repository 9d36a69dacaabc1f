/* What the signatures of a table ask of each runtime param: its distinct types, and which of them each signature has. */
#ifndef NOJIT_SELECT_SIGNATURES_H
#define NOJIT_SELECT_SIGNATURES_H

#include "select/param_type.h"
#include "table/table.h"

#define NJ_TYPES_MAX 60

/* The types of one runtime param. */
typedef struct {
    uint32_t place; /* among all params */
    uint8_t type_count;
    bool tuple;   /* whether some type is one */
    bool address; /* whether a bare int is an address: the param takes nothing but pointers */
    nj_type *types;   /* in the order of the signatures; owned */
    nj_span *spelled;
    uint64_t pointers[NJ_DTYPE_COUNT + 1]; /* for each nj_dtype, which of the types take a pointer to it; all do if it does not say */
} nj_param_types;

/* The place of a name of a table's expressions. */
typedef struct {
    nj_span name; /* NULL: nowhere */
    int32_t place; /* of a param, or one less than the negative of an axis's */
} nj_known_name;

/* Immutable, but for the ids. */
typedef struct {
    const nj_table *table;
    nj_ids *ids;
    nj_param_types *params; /* of each runtime param */
    uint8_t *numbers;       /* of each signature, and each runtime param: which type it has */
    uint32_t *bits;         /* of each signature: the width of its ints together */
    nj_known_name *known;   /* axes and params by name, hashed; an axis comes before a param of its name */
    size_t mask;
    uint64_t seed; /* nobody who writes a table knows it, so that nobody has names collide */
} nj_signatures;

/* Reads the types of a table, which must outlive this, as must `ids`, which gets the constants among them. False with `error`
 * filled. `nj_signatures_clear` is due in either case. */
NJ_FOR_BINDING bool nj_signatures_init(nj_signatures *signatures, const nj_table *table, nj_ids *ids, nj_error *error);
NJ_FOR_BINDING void nj_signatures_clear(nj_signatures *signatures);

/* Finds the place of a name; its `name` is NULL if it is neither an axis's nor a param's. */
const nj_known_name *nj_signatures_find(const nj_signatures *signatures, nj_span name);

/* Reads the types of one param. False with `error` filled; `nj_param_clear` is due in either case. */
NJ_FOR_BINDING bool nj_param_init(nj_param_types *param, const nj_span *types, size_t count, nj_ids *ids, nj_error *error);
NJ_FOR_BINDING void nj_param_clear(nj_param_types *param);

#endif
