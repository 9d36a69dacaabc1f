/* What the names in a table's expressions stand for, for one meaning and config; and which values are the same. */
#ifndef NOJIT_MEANING_H
#define NOJIT_MEANING_H

#include "choosing.h"
#include "base/span.h"

/* The fields of records that are looked at. */
typedef enum {
    NJ_FIELD_AXES,
    NJ_FIELD_BLOCK,
    NJ_FIELD_BLOCKS,
    NJ_FIELD_COLUMNS,
    NJ_FIELD_CONFIGS,
    NJ_FIELD_CONSTEXPRS,
    NJ_FIELD_COOPERATIVE,
    NJ_FIELD_DEFAULT,
    NJ_FIELD_DERIVED,
    NJ_FIELD_DERIVED_VALUES,
    NJ_FIELD_DEVICE,
    NJ_FIELD_ELEMENT_BYTES,
    NJ_FIELD_ELEMENT_TYPE,
    NJ_FIELD_EXPRESSION,
    NJ_FIELD_FP4_PADDED,
    NJ_FIELD_GLOBAL_SCRATCH_ALIGN,
    NJ_FIELD_GLOBAL_SCRATCH_BYTES,
    NJ_FIELD_GRID,
    NJ_FIELD_HINT_SETS,
    NJ_FIELD_IS_CONSTEXPR,
    NJ_FIELD_IS_TYPE,
    NJ_FIELD_KEY,
    NJ_FIELD_LAYOUT,
    NJ_FIELD_MEANINGS,
    NJ_FIELD_NAME,
    NJ_FIELD_NUM_CTAS,
    NJ_FIELD_NUM_WARPS,
    NJ_FIELD_OPTIONS,
    NJ_FIELD_PARAMS,
    NJ_FIELD_PDL,
    NJ_FIELD_PROFILE_SCRATCH_ALIGN,
    NJ_FIELD_PROFILE_SCRATCH_BYTES,
    NJ_FIELD_PROGRAMS,
    NJ_FIELD_REQUIRES,
    NJ_FIELD_SHARED_BYTES,
    NJ_FIELD_SIGNATURE,
    NJ_FIELD_SIGNATURES,
    NJ_FIELD_SOURCE,
    NJ_FIELD_SWIZZLE,
    NJ_FIELD_SYMBOL,
    NJ_FIELD_TENSOR_MAPS,
    NJ_FIELD_TEXT,
    NJ_FIELD_TUNING,
    NJ_FIELD_VALUES,
    NJ_FIELD_COUNT,
} nj_field_name;

/* Makes the names of fields; once, at import. */
int nj_meaning_init(void);

/* A field of a record, which keeps it alive: borrowed; NULL without an exception if there is none. */
PyObject *nj_peek(PyObject *record, nj_field_name field);

/* An item of a tuple, borrowed; NULL if it is no tuple of so many. */
PyObject *nj_item(PyObject *tuple, Py_ssize_t place);

/* How many items a tuple has; 0 if it is none. */
Py_ssize_t nj_size(PyObject *tuple);

/* The place of a param by its name; -1 if there is none. */
Py_ssize_t nj_param_place(const nj_signature *signature, PyObject *name);

/* Whether a value is of a kind that is compared here: none, a bool, an int, a float or a string, and of no class derived
 * from these. */
bool nj_is_simple(PyObject *value);

/* Whether two values are the same by type and value, the first a simple one. */
bool nj_is_same(PyObject *simple, PyObject *value);

/* What a name stands for that is the same for all configs. */
typedef struct {
    nj_span name;
    Py_ssize_t place; /* of a param, or one less than the negative of an axis's */
} nj_known_name;

/* The axes and params of a table, hashed by name; an axis comes before a param of its name. */
typedef struct {
    nj_known_name *names; /* NULL until they are asked for */
    size_t mask;
    uint64_t seed; /* nobody who writes a table knows it, so that nobody has names collide */
} nj_known_names;

void nj_known_names_clear(nj_known_names *known);

/* A meaning and a config, whose expressions are evaluated. */
typedef struct {
    const nj_choosing *choosing;
    PyObject *table, *config;
    PyObject *point; /* for each axis, the index of its value */
    nj_known_names *known;
    bool asks_types; /* set where a program asks for an axis that only spells types */
} nj_scene;

/* Evaluates the table's program of that number: 1, 0 where it fails, -1 where Python must. */
int nj_evaluate(nj_scene *scene, Py_ssize_t number, nj_value *result);

#endif
