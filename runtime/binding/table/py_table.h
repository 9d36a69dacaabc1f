/* Variant tables of bundles, as Python holds them. */
#ifndef NOJIT_PY_TABLE_H
#define NOJIT_PY_TABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_table;

/* The table of a `Table`, which keeps it alive; NULL with an exception raised for another object. */
const struct nj_table *py_table_of(PyObject *handle);

#endif
