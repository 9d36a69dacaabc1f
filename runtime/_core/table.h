/* Variant tables of bundles, read whole. runtime/table_reader.py holds the rules and names the one that is broken. */
#ifndef NOJIT_TABLE_H
#define NOJIT_TABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `read_table(raw, rows, image_count, parse, is_type, decode_value)`: what the JSON and the columns of a table say, if they
 * keep every rule; None if one is broken or something is not gone into here. The fields come in the order of the JSON: launches
 * as the JSON of each, `tuning` as its JSON or None; last, as `KernelTable.param_types` has them, the types of each runtime param. The three functions raise a ValueError for an expression or a value, or
 * are false for a type, that breaks a rule. */
PyObject *nj_read_table(PyObject *module, PyObject *args);

#endif
