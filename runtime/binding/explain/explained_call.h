/* A call that is to be explained, given as records of Python's, set against a table. */
#ifndef NOJIT_EXPLAINED_CALL_H
#define NOJIT_EXPLAINED_CALL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "table/py_table.h"
#include "table/py_tuning.h"
#include "values/argument_records.h"

#include "select/select.h"

/* What Python says of a call; borrowed. */
typedef struct {
    PyObject *table;
    PyObject *arguments, *constexprs, *options; /* dicts by name */
    int arch;
} py_call_records;

typedef struct {
    PyObject *table, *held; /* what texts are borrowed from */
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
    bool open; /* whether the match is */
} py_explained_call;

/* Reads a call into zeroed memory and sets it against its table; `ordering` is what `py_ordering_read` takes. 0, or -1 with an
 * exception raised. `py_explained_close` is due in either case. */
int py_explained_open(py_explained_call *self, const py_call_records *call, PyObject *ordering, PyObject *where);
void py_explained_close(py_explained_call *self);

#endif
