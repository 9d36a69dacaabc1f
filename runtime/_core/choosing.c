#include "choosing.h"

#include "eligible.h"

#include "cold.h"

static uint32_t at(const nj_choice *choice, int column, Py_ssize_t row)
{
    return ((const uint32_t *)choice->columns[column].buf)[row];
}

static bool hold_columns(nj_choice *choice)
{
    static const char *const names[NJ_KEY_COLUMNS] = {"meaning", "config", "hints", "derived"};
    PyObject *columns = nj_peek(choice->table, NJ_FIELD_COLUMNS);
    for (; choice->column_count < NJ_KEY_COLUMNS; choice->column_count++) {
        Py_buffer *column = &choice->columns[choice->column_count];
        PyObject *array = columns != NULL && PyDict_Check(columns) ? PyDict_GetItemString(columns, names[choice->column_count]) : NULL;
        if (array == NULL || PyObject_GetBuffer(array, column, PyBUF_SIMPLE) < 0) {
            PyErr_Clear();
            return false;
        }
    }
    choice->row_count = choice->columns[0].len / (Py_ssize_t)sizeof(uint32_t);
    for (int i = 0; i < NJ_KEY_COLUMNS; i++) {
        if (choice->columns[i].len != choice->columns[0].len) {
            return false;
        }
    }
    return true;
}

/* Looks for a better row than the best so far among those of one meaning and config, which asks for ints no wider than it. */
static void try_rows(nj_choice *choice, const nj_run_of_rows *rows)
{
    nj_value derived[NJ_DERIVED_MAX];
    bool rivals = choice->row >= 0 && rows->bits == choice->bits;
    bool equal = rivals && rows->rank == choice->rank;
    if ((rivals && rows->rank > choice->rank) || !nj_runs(choice, rows, derived)) {
        return;
    }
    for (Py_ssize_t row = rows->first; row < rows->end; row++) {
        uint32_t hints = at(choice, NJ_COLUMN_HINTS, row);
        Py_ssize_t count = nj_size(nj_item(choice->hint_sets, hints));
        if (hints < (size_t)nj_size(choice->hint_sets) && (!equal || count > choice->hint_count) &&
            nj_is_derived(choice, at(choice, NJ_COLUMN_DERIVED, row), derived) && nj_hints_hold(choice, hints)) {
            choice->row = row;
            choice->bits = rows->bits;
            choice->rank = rows->rank;
            choice->hint_count = count;
            equal = true;
        }
    }
}

/* The configs of a meaning as tuning tables order them, new; NULL with an exception raised. */
static PyObject *preferred(const nj_choice *choice, Py_ssize_t meaning)
{
    const nj_spec *spec = choice->it->spec;
    PyObject *key = PyTuple_New(spec->tuning_count);
    for (Py_ssize_t i = 0; key != NULL && i < spec->tuning_count; i++) {
        PyObject *number = PyLong_FromLongLong(nj_tuning_key_value(&spec->tuning[i], spec->bucket, choice->it->call->values));
        if (number == NULL) {
            Py_CLEAR(key);
            break;
        }
        PyTuple_SET_ITEM(key, i, number);
    }
    PyObject *order = key == NULL ? NULL : PyObject_CallMethod(choice->it->owner, "_prefer", "inN", choice->it->call->device, meaning, key);
    if (order != NULL && !PyTuple_Check(order)) {
        Py_SETREF(order, PySequence_Tuple(order));
    }
    return order;
}

/* The place of a config in an order; one that it leaves out comes behind, among the others in the table's order. */
static int64_t rank_in(PyObject *order, Py_ssize_t config)
{
    Py_ssize_t count = nj_size(order), place = config;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t listed = PyLong_AsSsize_t(PyTuple_GET_ITEM(order, i));
        if (listed == config) {
            return i;
        }
        place += listed > config;
    }
    return place;
}

/* Goes on to the rows of the next meaning and config; false behind the last. */
static bool next_rows(const nj_choice *choice, nj_run_of_rows *rows)
{
    Py_ssize_t row = rows->end;
    if (row >= choice->row_count) {
        return false;
    }
    *rows = (nj_run_of_rows){.meaning = at(choice, NJ_COLUMN_MEANING, row), .config = at(choice, NJ_COLUMN_CONFIG, row), .first = row};
    while (row < choice->row_count && (Py_ssize_t)at(choice, NJ_COLUMN_MEANING, row) == rows->meaning &&
           (Py_ssize_t)at(choice, NJ_COLUMN_CONFIG, row) == rows->config) {
        row++;
    }
    rows->end = row;
    return true;
}

/* Goes on to the next meaning and config that the call can mean. */
static bool next_meant(nj_choice *choice, nj_run_of_rows *rows)
{
    while (next_rows(choice, rows)) {
        if (nj_is_meant(choice, nj_item(choice->meanings, rows->meaning), &rows->bits)) {
            return true;
        }
    }
    return false;
}

/* Whether the order of configs can matter: there are several, and something orders them. */
static bool has_order(nj_choice *choice)
{
    nj_run_of_rows rows = {.end = 0};
    return choice->it->spec->tuning != NULL && next_meant(choice, &rows) && next_meant(choice, &rows);
}

/* Goes through all rows; -1 with an exception raised. */
static int try_all(nj_choice *choice)
{
    bool ordered = has_order(choice);
    Py_ssize_t of = -1; /* the meaning that `order` is of */
    PyObject *order = NULL;
    for (nj_run_of_rows rows = {.end = 0}; !choice->unsure && next_meant(choice, &rows);) {
        if (choice->row >= 0 && rows.bits > choice->bits) {
            continue; /* narrow ints come first, whatever was measured of wide ones */
        }
        if (ordered && rows.meaning != of) {
            of = rows.meaning;
            Py_XSETREF(order, preferred(choice, of));
            if (order == NULL) {
                return -1;
            }
        }
        rows.rank = rank_in(order, rows.config);
        try_rows(choice, &rows);
    }
    Py_XDECREF(order);
    return 0;
}

static Py_ssize_t choose(nj_choice *choice)
{
    size_t signatures = (size_t)nj_size(choice->signatures), hint_sets = (size_t)nj_size(choice->hint_sets);
    if (nj_size(choice->axes) > NJ_AXES_MAX || nj_size(choice->derived) > NJ_DERIVED_MAX || !nj_is_common(choice) ||
        !nj_find_point(choice) || !hold_columns(choice)) {
        return NJ_UNSURE;
    }
    choice->fit = PyMem_Calloc(signatures + hint_sets + 1, 1);
    if (choice->fit == NULL) {
        PyErr_NoMemory();
        return NJ_FAILED;
    }
    choice->held = choice->fit + signatures;
    Py_ssize_t row = try_all(choice) < 0 ? NJ_FAILED : choice->unsure ? NJ_UNSURE : choice->row;
    PyMem_Free(choice->fit);
    return row;
}

Py_ssize_t nj_choose(const nj_choosing *it)
{
    PyObject *table = it->spec->table;
    nj_choice choice = {
        .it = it,
        .table = table,
        .axes = nj_peek(table, NJ_FIELD_AXES),
        .meanings = nj_peek(table, NJ_FIELD_MEANINGS),
        .configs = nj_peek(table, NJ_FIELD_CONFIGS),
        .hint_sets = nj_peek(table, NJ_FIELD_HINT_SETS),
        .signatures = nj_peek(table, NJ_FIELD_SIGNATURES),
        .derived = nj_peek(table, NJ_FIELD_DERIVED),
        .derived_values = nj_peek(table, NJ_FIELD_DERIVED_VALUES),
        .row = NJ_UNSURE,
    };
    Py_ssize_t row = choose(&choice);
    while (choice.column_count > 0) {
        PyBuffer_Release(&choice.columns[--choice.column_count]);
    }
    return row;
}
