/* Converts parts of a variant table to the records of runtime/table/parts.py. Every function needs the GIL. */
#ifndef NOJIT_TABLE_RECORDS_H
#define NOJIT_TABLE_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_table;

/* Imports the classes of the records if they are not set. Call it before making a record. Returns 0, or -1 with an exception raised. */
int py_need_classes(void);

/* Returns a new field of `KernelTable` by its name; NULL with an exception raised. */
PyObject *py_table_part(const struct nj_table *table, PyObject *name);

/* Returns a new tuple (params, names of options), the arguments of `Dispatcher`; NULL with an exception raised. */
PyObject *py_table_signature(const struct nj_table *table);

#endif
