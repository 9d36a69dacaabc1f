/* Making the records of runtime/base/frozen_record.py. Every function needs the GIL. */
#ifndef NOJIT_RECORDS_H
#define NOJIT_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

enum { PY_RECORD_FIELDS_MAX = 12 };

/* A class of records. */
typedef struct {
    PyTypeObject *type;
    Py_ssize_t field_count;
    PyObject *fields[PY_RECORD_FIELDS_MAX]; /* their descriptors */
} py_record;

/* Takes the fields of a class of records, which has so many; 0, or -1 with an exception raised. */
int py_record_of(PyObject *type, Py_ssize_t field_count, py_record *record);
void py_record_clear(py_record *record);

/* Takes the fields of a class, found by the names of its module and its own. */
int py_record_find(const char *module, const char *name, Py_ssize_t field_count, py_record *record);

/* Makes a record of as many values as it has fields, which it steals; NULL where one is NULL, or with an exception raised. */
PyObject *py_record_make(const py_record *record, PyObject **values);

#endif
