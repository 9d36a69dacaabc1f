/* Variant tables of bundles, as Python holds them. */
#ifndef NOJIT_PY_TABLE_H
#define NOJIT_PY_TABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_table;

int py_table_init(PyObject *module);

/* `read_table(raw, rows, images, where)`: a `Table`. Raises the rule that is broken. */
PyObject *py_read_table(PyObject *module, PyObject *args);

/* `is_cost(words, keys)`: whether an expression in postfix is a number, over so many numbers of a key and the multiprocessors. */
PyObject *py_is_cost_of(PyObject *module, PyObject *args);

/* The table of a `Table`, which keeps it alive; NULL with an exception raised for another object. */
const struct nj_table *py_table_of(PyObject *handle);

#endif
