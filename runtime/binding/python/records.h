/* Makes records of runtime/base/frozen_record.py. Every function needs the GIL. */
#ifndef NOJIT_RECORDS_H
#define NOJIT_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

enum { PY_RECORD_FIELDS_MAX = 12 };

/* A class of records. Its objects are owned. */
typedef struct {
    PyTypeObject *type;
    Py_ssize_t field_count;
    PyObject *fields[PY_RECORD_FIELDS_MAX]; /* descriptors of the fields */
} py_record;

/* Reads a class of records, which must have `field_count` fields. Returns 0, or -1 with an exception raised. */
int py_record_of(PyObject *type, Py_ssize_t field_count, py_record *record);
void py_record_clear(py_record *record);

/* Does the same for a class that it imports. */
int py_record_find(const char *module, const char *name, Py_ssize_t field_count, py_record *record);

/* Returns a new record with a value for each field; NULL with an exception raised. Steals `values`, which may be NULL with an exception
 * raised. */
PyObject *py_record_make(const py_record *record, PyObject **values);

#endif
