/* The columns of a variant table. */
#ifndef NOJIT_COLUMNS_H
#define NOJIT_COLUMNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>

/* Columns of `rows` numbers each, one after the other, as arrays: a dict by their names. */
PyObject *py_columns_make(const unsigned char *columns, size_t rows);

#endif
