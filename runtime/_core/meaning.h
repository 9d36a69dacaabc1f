/* Fields of records, by name. Every function needs the GIL. */
#ifndef NOJIT_MEANING_H
#define NOJIT_MEANING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

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

#endif
