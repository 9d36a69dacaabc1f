/* `_core.Tuning`: a tuning of the engine, from a variant table or from tuning files that replace the table's. */
#ifndef NOJIT_PY_TUNING_H
#define NOJIT_PY_TUNING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "values/py_constant.h"

#include "select/config_order.h"

typedef struct {
    PyObject_HEAD
    const nj_tuning *tuning;
    nj_tuning own;    /* what `tuning` points to, unless it is a table's */
    py_pile *pile;    /* memory of `own` */
    PyObject *source; /* owner of the texts, or the Table; owned */
} py_tuning;

/* Facts that rank configs: a tuning, one of its tables and the device's multiprocessors. */
typedef struct {
    py_tuning *object; /* borrowed; NULL without a tuning, or with the variant table's own */
    const nj_tuning *tuning;  /* NULL if configs are not ranked */
    nj_tuned tuned;
} py_ordering;

/* Reads None or (Tuning, index of the tuning table or -1, multiprocessors). Returns 0, or -1 with an exception raised. */
int py_ordering_read(PyObject *object, py_ordering *ordering);

/* Finds the ordering that a variant table's own tuning gives on a device. Returns 0, or -1 with an exception raised. */
int py_ordering_own(const nj_table *table, PyObject *device, py_ordering *ordering);

#endif
