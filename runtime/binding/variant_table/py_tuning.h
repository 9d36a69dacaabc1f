/* Tunings of the engine as Python objects: of a table, or of files that stand in for it. */
#ifndef NOJIT_PY_TUNING_H
#define NOJIT_PY_TUNING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "values/py_constant.h"
#include "launch/tuned.h"
#include "select/ranking.h"

typedef struct {
    PyObject_HEAD
    const nj_tuning *tuning;
    nj_tuning own;   /* unless it is a table's */
    py_pile *pile;
    PyObject *source; /* what the texts are borrowed from */
} py_tuning;

/* Makes the type; once, at import. */
int py_tuning_init(PyObject *module);

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

/* `rank_configs(block, key, multiprocessors)`: the configs of a block, the best first. A block is (key values, configs, how far each
 * is behind, costs), as `TuningBlock` gives them. */
PyObject *py_rank_configs(PyObject *module, PyObject *args);

/* `estimate(costs, key, multiprocessors)`: what each config is estimated to take; None where that cannot be computed. */
PyObject *py_estimate_costs(PyObject *module, PyObject *args);

/* `nearest(points, key)`: the place of the nearest point. */
PyObject *py_nearest_of(PyObject *module, PyObject *args);

/* `behind_in_sum(weights, configs, behind)`: how far each config is behind in sum, as a dict. */
PyObject *py_behind_sums(PyObject *module, PyObject *args);

/* `bucket_of(kind, value)`: a number of a key, rounded. */
PyObject *py_bucket_value(PyObject *module, PyObject *args);

#endif
