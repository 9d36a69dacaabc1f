/* Reads the parts of a tuning from Python tuples. Functions return false or NULL with an exception raised. */
#ifndef NOJIT_TUNING_RECORDS_H
#define NOJIT_TUNING_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "values/py_constant.h"

#include "table/table.h"

/* Requires a tuple of at most `most` items. */
bool py_is_short_tuple(PyObject *object, Py_ssize_t most);

/* Reads a tuple of ints that fit uint32_t. */
uint32_t *py_read_numbers(PyObject *numbers, py_pile **pile, uint32_t *count);

/* Reads a tuple of `count` ints that are not negative and fit int64_t. */
bool py_read_point(PyObject *numbers, int64_t *point, uint32_t count);

/* Reads the name of a bucket. */
bool py_read_bucket(PyObject *name, nj_bucket *bucket);

/* Reads measured problems. */
bool py_read_problems(PyObject *at, PyObject *use, PyObject *behind, uint32_t key_count, py_pile **pile, nj_tuning_block *block);

/* Reads a tuple of (config, cost). */
bool py_read_costs(PyObject *costs, py_pile **pile, nj_tuning_block *block);

/* Reads a block: (key values, configs, how far each config is behind the best, costs). */
bool py_read_block(PyObject *object, uint32_t key_count, py_pile **pile, nj_tuning_block *block);

#endif
