/* The columns of a variant table. */
#ifndef NOJIT_COLUMNS_H
#define NOJIT_COLUMNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>

/* Returns a new dict of arrays, one of `rows` numbers for each column, by name; NULL with an exception raised. `columns` holds one column
 * after the other. */
PyObject *py_columns_make(const unsigned char *columns, size_t rows);

#endif
