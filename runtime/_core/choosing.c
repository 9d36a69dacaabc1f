#include "choosing.h"

#include "eligible.h"

#include <stdlib.h>

#include "cold.h"

/* Whoever interrupts a choice of very many rows waits for no more than so many. */
#define ROWS_BETWEEN_SIGNALS 256

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

/* A config that an order lists. */
typedef struct {
    Py_ssize_t config, rank;
} nj_listed;

/* An order, to find configs in. */
typedef struct {
    PyObject *order; /* owned; NULL before the first */
    nj_listed *listed; /* by config */
    Py_ssize_t count;
} nj_order;

static int compare_listed(const void *one, const void *other)
{
    const nj_listed *a = one, *b = other;
    if (a->config != b->config) {
        return a->config < b->config ? -1 : 1;
    }
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static void clear_order(nj_order *it)
{
    Py_CLEAR(it->order);
    PyMem_Free(it->listed);
    it->listed = NULL;
    it->count = 0;
}

/* Takes an order, which it steals: 0, or -1 with an exception raised. Meanings that are tuned alike have one and the same. */
static int take_order(nj_order *it, PyObject *order)
{
    if (order == NULL || order == it->order) {
        Py_XDECREF(order);
        return order == NULL ? -1 : 0;
    }
    clear_order(it);
    it->order = order;
    it->count = nj_size(order);
    it->listed = PyMem_Malloc(((size_t)it->count + 1) * sizeof *it->listed);
    if (it->listed == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < it->count; i++) {
        it->listed[i] = (nj_listed){PyLong_AsSsize_t(PyTuple_GET_ITEM(order, i)), i};
        if (it->listed[i].config == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    qsort(it->listed, (size_t)it->count, sizeof *it->listed, compare_listed);
    return 0;
}

/* The place of a config in an order; one that it leaves out comes behind, among the others in the table's order. */
static int64_t rank_in(const nj_order *it, Py_ssize_t config)
{
    Py_ssize_t low = 0, high = it->count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (it->listed[middle].config < config) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool listed = low < it->count && it->listed[low].config == config;
    return listed ? it->listed[low].rank : config + it->count - low;
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
        if (nj_is_meant(choice, rows->meaning, &rows->bits)) {
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
    Py_ssize_t of = -1, looked = 0; /* the meaning that `order` is of; rows that were looked at */
    nj_order order = {NULL, NULL, 0};
    int status = 0;
    for (nj_run_of_rows rows = {.end = 0}; status == 0 && !choice->unsure && next_meant(choice, &rows);) {
        if (++looked % ROWS_BETWEEN_SIGNALS == 0 && PyErr_CheckSignals() < 0) {
            status = -1;
        } else if (choice->row >= 0 && rows.bits > choice->bits) {
            continue; /* narrow ints come first, whatever was measured of wide ones */
        } else if (ordered && rows.meaning != of) {
            of = rows.meaning;
            status = take_order(&order, preferred(choice, of));
        }
        if (status == 0) {
            rows.rank = rank_in(&order, rows.config);
            try_rows(choice, &rows);
        }
    }
    clear_order(&order);
    return status;
}

static Py_ssize_t choose(nj_choice *choice)
{
    if (nj_size(choice->axes) > NJ_AXES_MAX || nj_size(choice->derived) > NJ_DERIVED_MAX || !nj_is_common(choice) ||
        !nj_find_point(choice) || !hold_columns(choice)) {
        return NJ_UNSURE;
    }
    bool failed = nj_choice_start(choice) < 0 || try_all(choice) < 0;
    nj_choice_end(choice);
    return failed ? NJ_FAILED : choice->unsure ? NJ_UNSURE : choice->row;
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
