/* Matches a call, which Python describes by records, against a table to explain the selection. */
#ifndef NOJIT_EXPLAINED_CALL_H
#define NOJIT_EXPLAINED_CALL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "table/py_table.h"
#include "table/py_tuning.h"
#include "values/argument_records.h"

#include "select/select.h"

/* Python's description of a call; borrowed. */
typedef struct {
    PyObject *table;
    PyObject *arguments, *constexprs, *options; /* dicts by name */
    int arch;
} py_call_records;

typedef struct {
    PyObject *table, *held; /* owners of the texts that the other fields borrow; owned */
    nj_ids *ids;
    nj_signatures signatures;
    py_read_arguments *read;
    py_pile *pile;
    nj_coerced_call coerced;
    nj_match match;
    py_ordering ordering; /* its object is owned */
    nj_tuning_key programs[NJ_TUNING_KEYS_MAX];
    int64_t numbers[NJ_TUNING_KEYS_MAX], rounded[NJ_TUNING_KEYS_MAX];
    nj_preference preference;
    nj_verdict outcome;
    nj_fault fault;
    bool open; /* true if `match` is open */
} py_explained_call;

/* Reads a call into zeroed memory and matches it against its table. `ordering` is an argument of `py_ordering_read`. Returns 0, or -1
 * with an exception raised. Call `py_explained_close` in either case. */
int py_explained_open(py_explained_call *self, const py_call_records *call, PyObject *ordering, PyObject *where);
void py_explained_close(py_explained_call *self);

#endif
