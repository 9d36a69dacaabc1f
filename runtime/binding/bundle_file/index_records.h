/* The index of a bundle for Python: a border around the engine's bundle/. */
#ifndef NOJIT_INDEX_RECORDS_H
#define NOJIT_INDEX_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_index;

/* `read_index(raw, where, (BundleIndex, TargetInfo, KernelEntry, Section, Attachment))`: the index as a record. Raises BundleFormatError. */
PyObject *py_read_index(PyObject *module, PyObject *args);

/* The record of an index: `classes` are those five. NULL with an exception raised. */
PyObject *py_index_record(const struct nj_index *index, PyObject *classes);

/* `check_json(raw, where)`: checks that bytes are canonical JSON. Raises BundleFormatError. */
PyObject *py_check_json_of(PyObject *module, PyObject *args);

/* `is_printable(text)`: whether a text is safe to show. */
PyObject *py_is_printable_of(PyObject *module, PyObject *text);

/* `is_name(text)`: whether a text is a name of the format. */
PyObject *py_is_name_of(PyObject *module, PyObject *text);

/* Adds the limits of the format to the module; 0, or -1 with an exception raised. */
int py_limits_init(PyObject *module);

#endif
