/* Parts of a variant table, as the records of runtime/table/table.py. Every function needs the GIL. */
#ifndef NOJIT_TABLE_RECORDS_H
#define NOJIT_TABLE_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_constant;
struct nj_table;

/* Finds the classes of records; once, at import. */
int py_table_records_init(void);

/* Makes a field of `KernelTable` by its name; NULL with an exception raised. */
PyObject *py_table_part(const struct nj_table *table, PyObject *name);

/* `read_value(raw, where)`: the value of its JSON. */
PyObject *py_read_value(PyObject *module, PyObject *args);

/* The value of a constant. */
PyObject *py_constant_value(const struct nj_constant *value);

#endif
