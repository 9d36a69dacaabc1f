/* The tuning of a variant table, read whole. runtime/tuning_reader.py holds the rules and names the one that is broken. */
#ifndef NOJIT_TUNING_TABLE_H
#define NOJIT_TUNING_TABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "bundle/json.h"

/* Finds the records that tunings are made of; once, at import. */
int nj_tuning_init(void);

/* Takes a `Tuning`, for a kernel of so many meanings and configs; NULL without an exception if a rule is broken or something is
 * not gone into here. */
PyObject *nj_tuning_read(nj_json *json, Py_ssize_t meanings, Py_ssize_t configs);

/* `read_tuning(json, meanings, configs)`: the same of its JSON, None for NULL. */
PyObject *nj_read_tuning(PyObject *module, PyObject *args);

/* `tuning_columns(rows)`: what the rows of a block say, as three tuples of tuples of ints; None if something is not gone into here. */
PyObject *nj_tuning_columns(PyObject *module, PyObject *rows);

#endif
