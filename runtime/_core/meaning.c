#include "meaning.h"

#include "cold.h"

/* Set once by `nj_meaning_init` under the import lock, and never changed. */
static PyObject *names[NJ_FIELD_COUNT];

int nj_meaning_init(void)
{
    static const char *const spelled[NJ_FIELD_COUNT] = {
        [NJ_FIELD_AXES] = "axes",
        [NJ_FIELD_BLOCK] = "block",
        [NJ_FIELD_BLOCKS] = "blocks",
        [NJ_FIELD_COLUMNS] = "columns",
        [NJ_FIELD_CONFIGS] = "configs",
        [NJ_FIELD_CONSTEXPRS] = "constexprs",
        [NJ_FIELD_COOPERATIVE] = "cooperative",
        [NJ_FIELD_DEFAULT] = "default",
        [NJ_FIELD_DERIVED] = "derived",
        [NJ_FIELD_DERIVED_VALUES] = "derived_values",
        [NJ_FIELD_DEVICE] = "device",
        [NJ_FIELD_ELEMENT_BYTES] = "element_bytes",
        [NJ_FIELD_ELEMENT_TYPE] = "element_type",
        [NJ_FIELD_EXPRESSION] = "expression",
        [NJ_FIELD_FP4_PADDED] = "fp4_padded",
        [NJ_FIELD_GLOBAL_SCRATCH_ALIGN] = "global_scratch_align",
        [NJ_FIELD_GLOBAL_SCRATCH_BYTES] = "global_scratch_bytes",
        [NJ_FIELD_GRID] = "grid",
        [NJ_FIELD_HINT_SETS] = "hint_sets",
        [NJ_FIELD_IS_CONSTEXPR] = "constexpr",
        [NJ_FIELD_IS_TYPE] = "is_type",
        [NJ_FIELD_KEY] = "key",
        [NJ_FIELD_LAYOUT] = "layout",
        [NJ_FIELD_MEANINGS] = "meanings",
        [NJ_FIELD_NAME] = "name",
        [NJ_FIELD_NUM_CTAS] = "num_ctas",
        [NJ_FIELD_NUM_WARPS] = "num_warps",
        [NJ_FIELD_OPTIONS] = "options",
        [NJ_FIELD_PARAMS] = "params",
        [NJ_FIELD_PDL] = "pdl",
        [NJ_FIELD_PROFILE_SCRATCH_ALIGN] = "profile_scratch_align",
        [NJ_FIELD_PROFILE_SCRATCH_BYTES] = "profile_scratch_bytes",
        [NJ_FIELD_PROGRAMS] = "programs",
        [NJ_FIELD_REQUIRES] = "requires",
        [NJ_FIELD_SHARED_BYTES] = "shared_bytes",
        [NJ_FIELD_SIGNATURES] = "signatures",
        [NJ_FIELD_SIGNATURE] = "signature",
        [NJ_FIELD_SOURCE] = "source",
        [NJ_FIELD_SWIZZLE] = "swizzle",
        [NJ_FIELD_SYMBOL] = "symbol",
        [NJ_FIELD_TENSOR_MAPS] = "tensor_maps",
        [NJ_FIELD_TEXT] = "text",
        [NJ_FIELD_TUNING] = "tuning",
        [NJ_FIELD_VALUES] = "values",
    };
    for (int i = 0; i < NJ_FIELD_COUNT; i++) {
        Py_XSETREF(names[i], PyUnicode_InternFromString(spelled[i]));
        if (names[i] == NULL) {
            return -1;
        }
    }
    return 0;
}

PyObject *nj_peek(PyObject *record, nj_field_name field)
{
    PyObject *value = record == NULL ? NULL : PyObject_GetAttr(record, names[field]);
    if (value == NULL) {
        PyErr_Clear();
        return NULL;
    }
    /* what nobody else holds is no field of a record, and would be gone */
    bool kept = Py_REFCNT(value) > 1;
    Py_DECREF(value);
    return kept ? value : NULL;
}

Py_ssize_t nj_size(PyObject *tuple)
{
    return tuple != NULL && PyTuple_Check(tuple) ? PyTuple_GET_SIZE(tuple) : 0;
}

PyObject *nj_item(PyObject *tuple, Py_ssize_t place)
{
    return place >= 0 && place < nj_size(tuple) ? PyTuple_GET_ITEM(tuple, place) : NULL;
}
