/* Converts the index of a bundle to records of Python. */
#ifndef NOJIT_INDEX_RECORDS_H
#define NOJIT_INDEX_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

struct nj_index;

/* Returns a new record of an index; NULL with an exception raised. `classes` is (BundleIndex, TargetInfo, KernelEntry, Section,
 * Attachment). */
PyObject *py_index_record(const struct nj_index *index, PyObject *classes);

#endif
