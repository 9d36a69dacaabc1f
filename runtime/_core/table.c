#include "table.h"

#include "columns.h"
#include "image/elf.h"
#include "assemble.h"
#include "meaning.h"
#include "objects.h"
#include "table_checks.h"
#include "table_fields.h"

#include "cold.h"

enum {
    PARAMS_MAX = 1024,
    GRID_MAX = 3,
};

/* The fields of a table, in the order of the JSON, and what is worked out of them. */
enum {
    AXES,
    BATCH,
    CONFIGS,
    DERIVED,
    DERIVED_VALUES,
    GRID,
    HINT_SETS,
    LAUNCHES,
    LAYOUTS,
    MEANINGS,
    PARAMS,
    PROGRAMS,
    SIGNATURES,
    TUNING,
    TYPES, /* of each param */
};

static const struct {
    const char *key;
    nj_reader read; /* an item of the array */
    Py_ssize_t most;
} arrays[] = {
    [AXES] = {"{\"axes\":", nj_table_axis, NJ_PAIRS_MAX},
    [BATCH] = {",\"batch\":", nj_read_name, PARAMS_MAX},
    [CONFIGS] = {",\"configs\":", nj_table_config, NJ_POOL_MAX},
    [DERIVED] = {",\"derived\":", nj_table_derived, NJ_PAIRS_MAX},
    [DERIVED_VALUES] = {",\"derived_values\":", nj_table_derived_values, NJ_POOL_MAX},
    [GRID] = {",\"grid\":", nj_read_text, GRID_MAX},
    [HINT_SETS] = {",\"hint_sets\":", nj_table_hint_set, NJ_POOL_MAX},
    [LAUNCHES] = {",\"launches\":", nj_table_launch, NJ_POOL_MAX},
    [LAYOUTS] = {",\"layouts\":", nj_table_layout, NJ_POOL_MAX},
    [MEANINGS] = {",\"meanings\":", nj_table_meaning, NJ_POOL_MAX},
    [PARAMS] = {",\"params\":", nj_table_param, PARAMS_MAX},
    [PROGRAMS] = {",\"programs\":", nj_read_text, NJ_POOL_MAX},
    [SIGNATURES] = {",\"signatures\":", nj_table_signature, NJ_POOL_MAX},
};

static PyObject *read_tuning(nj_reading *it, const nj_items *fields)
{
    return nj_table_tuning(it, PyTuple_GET_SIZE(fields->at[MEANINGS]), PyTuple_GET_SIZE(fields->at[CONFIGS]));
}

/* Reads the whole document: a tuple of the fields. */
static PyObject *read_document(nj_reading *it)
{
    nj_items fields;
    bool whole = true;
    nj_items_init(&fields);
    for (int i = 0; whole && i < TUNING; i++) {
        whole = nj_json_is(&it->json, arrays[i].key) &&
                nj_items_add(&fields, nj_read_array(it, arrays[i].most, arrays[i].read)) == 0;
    }
    whole = whole && nj_json_is(&it->json, ",\"tuning\":") && nj_items_add(&fields, read_tuning(it, &fields)) == 0 &&
            nj_json_char(&it->json, '}') && it->json.at == it->json.end;
    whole = whole && it->signatures_named <= PyTuple_GET_SIZE(fields.at[SIGNATURES]) &&
            nj_hints_are_known(it, fields.at[HINT_SETS]) && nj_batch_is_known(it, fields.at[BATCH]) &&
            nj_constexprs_are_valued(it, fields.at[CONFIGS]) &&
            nj_items_add(&fields, nj_param_types(it, fields.at[SIGNATURES])) == 0;
    return nj_items_end(&fields, whole);
}

/* Takes a section apart: whether its lengths agree with one another and with the number of rows. */
static bool split(nj_span raw, size_t rows, nj_json *json, const unsigned char **columns)
{
    size_t length = raw.size < sizeof(uint32_t) ? SIZE_MAX : nj_u32(raw.at);
    if (length > raw.size || rows > NJ_POOL_MAX) {
        return false;
    }
    size_t start = sizeof(uint32_t) + (length + 3) / 4 * 4;
    if (raw.size != start + rows * NJ_COLUMNS * sizeof(uint32_t)) {
        return false;
    }
    *json = (nj_json){raw.at + sizeof(uint32_t), raw.at + sizeof(uint32_t) + length};
    *columns = raw.at + start;
    for (const unsigned char *at = json->end; at < *columns; at++) {
        if (*at != ' ') {
            return false;
        }
    }
    return nj_json_is_modest((nj_span){json->at, length}, NULL);
}

/* Whether the columns keep every rule. */
static bool points_right(PyObject *fields, const unsigned char *columns, size_t rows, size_t image_count)
{
    static const int pools[] = {MEANINGS, CONFIGS, HINT_SETS, DERIVED_VALUES, LAUNCHES};
    size_t sizes[NJ_POINTING_COLUMNS];
    for (int i = 0; i < NJ_POINTING_COLUMNS - 1; i++) {
        sizes[i] = (size_t)PyTuple_GET_SIZE(PyTuple_GET_ITEM(fields, pools[i]));
    }
    sizes[NJ_POINTING_COLUMNS - 1] = image_count;
    return nj_columns_right(columns, rows, sizes);
}

/* Gives an expression the next program; false if there are no more, or it is not that expression's. */
static bool add_program(PyObject *by_expression, PyObject *programs, Py_ssize_t *next, PyObject *expression)
{
    PyObject *program = nj_item(programs, (*next)++);
    PyObject *right = program == NULL || expression == NULL ? NULL : nj_words_of(expression);
    bool same = right != NULL && PyUnicode_Check(right) && PyUnicode_Compare(program, right) == 0;
    Py_XDECREF(right);
    return same && PyDict_SetItem(by_expression, expression, program) == 0;
}

/* The program of each expression, in the order of `KernelTable.expressions`; NULL unless there are as many of both. */
static PyObject *programs_by_expression(PyObject *fields)
{
    PyObject *programs = PyTuple_GET_ITEM(fields, PROGRAMS), *grid = PyTuple_GET_ITEM(fields, GRID);
    PyObject *derived = PyTuple_GET_ITEM(fields, DERIVED), *key = nj_peek(PyTuple_GET_ITEM(fields, TUNING), NJ_FIELD_KEY);
    PyObject *configs = PyTuple_GET_ITEM(fields, CONFIGS), *made = PyDict_New();
    Py_ssize_t next = 0;
    bool whole = made != NULL;
    for (Py_ssize_t i = 0; whole && i < nj_size(grid); i++) {
        whole = add_program(made, programs, &next, nj_item(grid, i));
    }
    for (Py_ssize_t i = 0; whole && i < nj_size(derived); i++) {
        whole = add_program(made, programs, &next, nj_peek(nj_item(derived, i), NJ_FIELD_EXPRESSION));
    }
    for (Py_ssize_t i = 0; whole && i < nj_size(key); i++) {
        whole = add_program(made, programs, &next, nj_item(key, i));
    }
    for (Py_ssize_t i = 0; whole && i < nj_size(configs); i++) {
        PyObject *requires = nj_peek(nj_item(configs, i), NJ_FIELD_REQUIRES);
        whole = PyUnicode_GET_LENGTH(requires) == 0 || add_program(made, programs, &next, requires);
    }
    if (!whole || next != nj_size(programs)) {
        Py_CLEAR(made);
    }
    return made;
}

/* What a table is made of, in the order of `KernelTable`, but for launches; then those, the layouts, the types of each param and
 * the programs by expression. */
static PyObject *in_order(PyObject *fields, const unsigned char *columns, size_t rows)
{
    static const int order[] = {PARAMS,  GRID,    TUNING,    AXES,           DERIVED, SIGNATURES, MEANINGS,
                                CONFIGS, HINT_SETS, DERIVED_VALUES, PROGRAMS};
    static const int behind[] = {BATCH, LAUNCHES, LAYOUTS, TYPES};
    nj_items made;
    bool whole = true;
    nj_items_init(&made);
    for (size_t i = 0; whole && i < sizeof order / sizeof *order; i++) {
        whole = nj_items_add(&made, Py_NewRef(PyTuple_GET_ITEM(fields, order[i]))) == 0;
    }
    whole = whole && nj_items_add(&made, nj_columns_make(columns, rows)) == 0;
    for (size_t i = 0; whole && i < sizeof behind / sizeof *behind; i++) {
        whole = nj_items_add(&made, Py_NewRef(PyTuple_GET_ITEM(fields, behind[i]))) == 0;
    }
    whole = whole && nj_items_add(&made, programs_by_expression(fields)) == 0;
    return nj_items_end(&made, whole);
}

static PyObject *read_table(nj_reading *it, nj_span raw, size_t rows, size_t image_count)
{
    const unsigned char *columns;
    if (!split(raw, rows, &it->json, &columns)) {
        return NULL;
    }
    it->params = PyDict_New();
    it->fixed = PyList_New(0);
    it->derived_texts = PySet_New(NULL);
    bool ready = it->params != NULL && it->fixed != NULL && it->derived_texts != NULL;
    PyObject *fields = ready ? read_document(it) : NULL;
    Py_XDECREF(it->params);
    Py_XDECREF(it->fixed);
    Py_XDECREF(it->derived_texts);
    nj_reading_end(it);
    bool right = fields != NULL && points_right(fields, columns, rows, image_count);
    PyObject *made = right ? in_order(fields, columns, rows) : NULL;
    Py_XDECREF(fields);
    return made;
}

PyObject *nj_read_table(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer raw;
    Py_ssize_t rows, image_count;
    nj_reading it = {0};
    if (!PyArg_ParseTuple(args, "y*nnOO:read_table", &raw, &rows, &image_count, &it.is_type, &it.decode_value)) {
        return NULL;
    }
    nj_span bytes = {raw.buf, (size_t)raw.len};
    PyObject *fields = rows < 0 || image_count < 0 ? NULL : read_table(&it, bytes, (size_t)rows, (size_t)image_count);
    PyBuffer_Release(&raw);
    return fields != NULL || PyErr_Occurred() ? fields : Py_NewRef(Py_None);
}
