/* Variant tables of bundles, read whole. runtime/table_reader.py holds the rules and names the one that is broken. */
#ifndef NOJIT_TABLE_H
#define NOJIT_TABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `read_table(raw, rows, image_count, is_type, decode_value)`: what the JSON and the columns of a table say, if they keep every rule;
 * None if one is broken or something is not gone into here. The fields come in the order of `KernelTable`, but for launches, which
 * come behind as the JSON of each; then the layouts, the types of each runtime param, as `KernelTable.param_types` has them, and the
 * programs by expression. The two functions raise a ValueError for a value, or are false for a type, that breaks a rule. */
PyObject *nj_read_table(PyObject *module, PyObject *args);

#endif
