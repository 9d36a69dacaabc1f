/* Converts launches of variant tables to the records of runtime/table/parts.py. Every function needs the GIL. */
#ifndef NOJIT_LAUNCH_RECORDS_H
#define NOJIT_LAUNCH_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_launch_facts;

/* Returns a new `Launch`; NULL with an exception raised. Steals `layout`. */
PyObject *py_launch_record(const struct nj_launch_facts *launch, PyObject *layout);

/* Sets the classes of these records. Returns 0, or -1 with an exception raised. */
int py_take_launch_classes(PyObject *launch, PyObject *map, PyObject *slot);

#endif
