/* The index of a bundle for Python: a border around the engine's bundle/. */
#ifndef NOJIT_INDEX_RECORDS_H
#define NOJIT_INDEX_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_index;

/* The record of an index: `classes` are those five. NULL with an exception raised. */
PyObject *py_index_record(const struct nj_index *index, PyObject *classes);

#endif
