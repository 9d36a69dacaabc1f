/* Tunings of the engine as Python objects: of a table, or of files that stand in for it. */
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
    nj_tuning own;   /* unless it is a table's */
    py_pile *pile;
    PyObject *source; /* what the texts are borrowed from */
} py_tuning;

/* What orders configs: a tuning, one of its tables and the multiprocessors of the device. */
typedef struct {
    py_tuning *object; /* borrowed; NULL if nothing orders them, or the table's own tuning does */
    const nj_tuning *tuning;  /* NULL if nothing orders them */
    nj_tuned tuned;
} py_ordering;

/* Reads None or (Tuning, place of the table or -1, multiprocessors): 0, or -1 with an exception raised. */
int py_ordering_read(PyObject *object, py_ordering *ordering);

/* Finds what a table's own tuning says on a device: 0, or -1 with an exception raised. */
int py_ordering_own(const nj_table *table, PyObject *device, py_ordering *ordering);

#endif
