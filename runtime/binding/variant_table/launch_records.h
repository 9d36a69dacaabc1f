/* Launches of variant tables, as the records of runtime/table/table.py. Every function needs the GIL. */
#ifndef NOJIT_LAUNCH_RECORDS_H
#define NOJIT_LAUNCH_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_launch_facts;

/* Finds the classes of records; once, at import. */
int py_launch_records_init(void);

/* Makes a `Launch` with a layout, which it steals. */
PyObject *py_launch_record(const struct nj_launch_facts *launch, PyObject *layout);

/* `read_launch(raw, layout, where)`: the `Launch` of its JSON and of the text of its only layout. */
PyObject *py_read_launch(PyObject *module, PyObject *args);

/* `read_layout(text, where)`: its `Slot`s, in a tuple. */
PyObject *py_read_layout_of(PyObject *module, PyObject *args);

#endif
