#include "row.h"

#include "assemble.h"
#include "meaning.h"
#include "objects.h"
#include "slots.h"
#include "table_parts.h"

#include "cold.h"

#define WARP_THREADS 32

typedef struct {
    PyObject *table, *launch, *places, *constant; /* borrowed */
    int arch;
    PyObject *meaning, *config, *hints, *derived; /* what the row points to; borrowed */
} nj_row;

/* What a row points to in a pool, by the name of the column; borrowed, NULL if there is none. */
static PyObject *pointed(PyObject *table, const char *column, Py_ssize_t row, nj_field_name pool)
{
    PyObject *columns = nj_peek(table, NJ_FIELD_COLUMNS);
    PyObject *numbers = columns != NULL && PyDict_Check(columns) ? PyDict_GetItemString(columns, column) : NULL;
    PyObject *number = numbers == NULL ? NULL : PySequence_GetItem(numbers, row);
    Py_ssize_t place = number == NULL ? -1 : PyLong_AsSsize_t(number);
    Py_XDECREF(number);
    return nj_item(nj_peek(table, pool), place);
}

static bool find_row(nj_row *it, Py_ssize_t row)
{
    it->meaning = pointed(it->table, "meaning", row, NJ_FIELD_MEANINGS);
    it->config = it->meaning == NULL ? NULL : pointed(it->table, "config", row, NJ_FIELD_CONFIGS);
    it->hints = it->config == NULL ? NULL : pointed(it->table, "hints", row, NJ_FIELD_HINT_SETS);
    it->derived = it->hints == NULL ? NULL : pointed(it->table, "derived", row, NJ_FIELD_DERIVED_VALUES);
    return it->derived != NULL;
}

static bool set(PyObject *names, PyObject *name, PyObject *value)
{
    return name != NULL && value != NULL && PyDict_SetItem(names, name, value) == 0;
}

static bool set_pairs(PyObject *names, PyObject *pairs)
{
    bool done = true;
    for (Py_ssize_t i = 0; done && i < nj_size(pairs); i++) {
        PyObject *pair = PyTuple_GET_ITEM(pairs, i);
        done = set(names, nj_item(pair, 0), nj_item(pair, 1));
    }
    return done;
}

static bool set_defaults(const nj_row *it, PyObject *names)
{
    PyObject *params = nj_peek(it->table, NJ_FIELD_PARAMS);
    bool done = true;
    for (Py_ssize_t i = 0; done && i < nj_size(params); i++) {
        PyObject *param = nj_item(params, i), *given = nj_peek(param, NJ_FIELD_DEFAULT);
        if (nj_peek(param, NJ_FIELD_IS_CONSTEXPR) == Py_True && given != nj_missing()) {
            done = set(names, nj_peek(param, NJ_FIELD_NAME), given);
        }
    }
    return done;
}

/* Sets the values of the axes that spell types, or of those that do not. */
static bool set_axes(const nj_row *it, PyObject *names, bool types)
{
    PyObject *axes = nj_peek(it->table, NJ_FIELD_AXES), *point = nj_peek(it->meaning, NJ_FIELD_VALUES);
    bool done = true;
    for (Py_ssize_t i = 0; done && i < nj_size(axes); i++) {
        PyObject *axis = nj_item(axes, i), *place = nj_item(point, i);
        if ((nj_peek(axis, NJ_FIELD_IS_TYPE) == Py_True) == types) {
            PyObject *value = place == NULL ? NULL : nj_item(nj_peek(axis, NJ_FIELD_VALUES), PyLong_AsSsize_t(place));
            done = set(names, nj_peek(axis, NJ_FIELD_NAME), value);
        }
    }
    return done;
}

static bool set_derived(const nj_row *it, PyObject *names)
{
    PyObject *derived = nj_peek(it->table, NJ_FIELD_DERIVED);
    bool done = true;
    for (Py_ssize_t i = 0; done && i < nj_size(derived); i++) {
        done = set(names, nj_peek(nj_item(derived, i), NJ_FIELD_NAME), nj_item(it->derived, i));
    }
    return done;
}

/* What each constexpr and option is: a dict in which what comes later has the last word. */
static PyObject *constexprs_of(const nj_row *it)
{
    PyObject *names = PyDict_New();
    bool done = names != NULL && set_defaults(it, names) && set_pairs(names, nj_peek(it->config, NJ_FIELD_OPTIONS)) &&
                set_axes(it, names, false) && set_pairs(names, nj_peek(it->config, NJ_FIELD_CONSTEXPRS)) &&
                set_derived(it, names);
    if (!done) {
        Py_CLEAR(names);
    }
    return names;
}

/* What expressions see beside that: the axes that spell types, where nothing else has their name, and the arch. */
static PyObject *seen_by_expressions(const nj_row *it, PyObject *constexprs)
{
    PyObject *names = PyDict_New(), *arch = PyLong_FromLong(it->arch);
    bool done = names != NULL && arch != NULL && set_axes(it, names, true) && PyDict_Update(names, constexprs) == 0 &&
                PyDict_SetItemString(names, "arch", arch) == 0;
    Py_XDECREF(arch);
    if (!done) {
        Py_CLEAR(names);
    }
    return names;
}

/* The program of an expression of the grid; NULL without an exception where Python must compile it. */
static PyObject *program_of(const nj_row *it, PyObject *postfix, PyObject *text, PyObject *names)
{
    PyObject *words = PyDict_GetItemWithError(postfix, text);
    Py_ssize_t size;
    const char *bytes = words == NULL ? NULL : PyUnicode_AsUTF8AndSize(words, &size);
    if (bytes == NULL) {
        return NULL;
    }
    PyObject *program = nj_assemble_words((nj_span){(const unsigned char *)bytes, (size_t)size}, names, it->places, it->constant);
    if (program != NULL && PyBytes_GET_SIZE(program) == 0) {
        Py_CLEAR(program);
    }
    return program;
}

static PyObject *grid_of(const nj_row *it, PyObject *constexprs)
{
    nj_items programs;
    PyObject *grid = nj_peek(it->table, NJ_FIELD_GRID);
    PyObject *postfix = PyObject_CallMethod(it->table, "programs_by_expression", NULL);
    PyObject *names = postfix == NULL || !PyDict_Check(postfix) ? NULL : seen_by_expressions(it, constexprs);
    bool whole = names != NULL;
    nj_items_init(&programs);
    for (Py_ssize_t i = 0; whole && i < nj_size(grid); i++) {
        whole = nj_items_add(&programs, program_of(it, postfix, nj_item(grid, i), names)) == 0;
    }
    Py_XDECREF(postfix);
    Py_XDECREF(names);
    return nj_items_end(&programs, whole);
}

static bool pack(const nj_row *it, nj_packed *packed)
{
    PyObject *signatures = nj_peek(it->table, NJ_FIELD_SIGNATURES), *signature = nj_peek(it->meaning, NJ_FIELD_SIGNATURE);
    nj_passed passed = {
        .params = nj_peek(it->table, NJ_FIELD_PARAMS),
        .places = it->places,
        .types = signature == NULL ? NULL : nj_item(signatures, PyLong_AsSsize_t(signature)),
        .hints = it->hints,
        .layout = nj_peek(nj_peek(it->launch, NJ_FIELD_LAYOUT), NJ_FIELD_TEXT),
        .maps = nj_peek(it->launch, NJ_FIELD_TENSOR_MAPS),
    };
    return passed.types != NULL && passed.layout != NULL && PyUnicode_Check(passed.layout) && nj_pack_slots(&passed, packed);
}

/* A number of the launch; -1 with an exception raised if it is none. */
static long number_of(const nj_row *it, nj_field_name field)
{
    PyObject *number = nj_peek(it->launch, field);
    return number == NULL ? -1 : PyLong_AsLong(number);
}

static PyObject *scratch_of(const nj_row *it, nj_field_name bytes, nj_field_name align)
{
    return Py_BuildValue("(ll)", number_of(it, bytes), number_of(it, align));
}

/* Steals how parameters are packed, the grid and the constexprs. */
static PyObject *describe(const nj_row *it, const nj_packed *packed, PyObject *grid, PyObject *constexprs)
{
    long warps = number_of(it, NJ_FIELD_NUM_WARPS), ctas = number_of(it, NJ_FIELD_NUM_CTAS);
    PyObject *global = scratch_of(it, NJ_FIELD_GLOBAL_SCRATCH_BYTES, NJ_FIELD_GLOBAL_SCRATCH_ALIGN);
    PyObject *profile = scratch_of(it, NJ_FIELD_PROFILE_SCRATCH_BYTES, NJ_FIELD_PROFILE_SCRATCH_ALIGN);
    return Py_BuildValue("((ONll){s:N,s:N,s:N,s:N,s:l,s:l,s:l,s:O,s:O,s:N,s:N})", nj_peek(it->launch, NJ_FIELD_SYMBOL), packed->sizes,
                         warps, ctas, "slots", packed->slots, "maps", packed->maps, "grid", grid, "meta", constexprs, "block_threads",
                         warps * WARP_THREADS, "num_ctas", ctas, "shared_bytes", number_of(it, NJ_FIELD_SHARED_BYTES),
                         "cooperative", nj_peek(it->launch, NJ_FIELD_COOPERATIVE), "pdl", nj_peek(it->launch, NJ_FIELD_PDL),
                         "global_scratch", global, "profile_scratch", profile);
}

PyObject *nj_plain_row(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_ssize_t row;
    nj_row it;
    nj_packed packed = {NULL, NULL, NULL};
    if (!PyArg_ParseTuple(args, "OnOO!iO:plain_row", &it.table, &row, &it.launch, &PyDict_Type, &it.places, &it.arch,
                          &it.constant)) {
        return NULL;
    }
    bool plain = find_row(&it, row) && pack(&it, &packed);
    PyObject *constexprs = plain ? constexprs_of(&it) : NULL;
    PyObject *grid = constexprs == NULL ? NULL : grid_of(&it, constexprs);
    if (grid != NULL) {
        return describe(&it, &packed, grid, constexprs);
    }
    nj_packed_clear(&packed);
    Py_XDECREF(constexprs);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}
