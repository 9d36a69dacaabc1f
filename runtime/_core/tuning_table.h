/* The tuning of a variant table, read whole. runtime/tuning_codec.py holds the rules and names the one that is broken. */
#ifndef NOJIT_TUNING_TABLE_H
#define NOJIT_TUNING_TABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `read_tuning(json, meanings, configs, TuningTable, TuningBlock, TunedDevice)`: bucket, key and tables of a tuning, for a kernel of so
 * many meanings and configs, if it keeps every rule; None if one is broken or something is not gone into here. Left to the caller:
 * that the key's expressions are some, and that no device, and in a table no meaning, is there twice. */
PyObject *nj_read_tuning(PyObject *module, PyObject *args);

/* `tuning_columns(rows)`: what the rows of a block say, as three tuples of tuples of ints; None if something is not gone into here. */
PyObject *nj_tuning_columns(PyObject *module, PyObject *rows);

#endif
