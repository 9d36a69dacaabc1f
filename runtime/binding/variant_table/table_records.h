/* Parts of a variant table, as the records of runtime/table/table.py. Every function needs the GIL. */
#ifndef NOJIT_TABLE_RECORDS_H
#define NOJIT_TABLE_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_table;

/* Makes a field of `KernelTable` by its name; NULL with an exception raised. */
PyObject *py_table_part(const struct nj_table *table, PyObject *name);

#endif
