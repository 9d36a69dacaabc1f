/* Parts of a variant table, as the records of runtime/table/parts.py. Every function needs the GIL. */
#ifndef NOJIT_TABLE_RECORDS_H
#define NOJIT_TABLE_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_table;

/* Has Python give the classes of records, before the first one is made: 0, or -1 with an exception raised. */
int py_need_classes(void);

/* Makes a field of `KernelTable` by its name; NULL with an exception raised. */
PyObject *py_table_part(const struct nj_table *table, PyObject *name);

/* Makes the params and the names of options as `Dispatcher` takes them, in a tuple of two; NULL with an exception raised. */
PyObject *py_table_signature(const struct nj_table *table);

#endif
