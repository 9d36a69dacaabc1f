/* `_core.Table`: the variant table of a kernel in a bundle. */
#ifndef NOJIT_PY_TABLE_H
#define NOJIT_PY_TABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_table;

/* Returns the table that a `Table` owns, borrowed; NULL with TypeError raised for another object. */
const struct nj_table *py_table_of(PyObject *handle);

#endif
