/* `_core.Row`: the facts of a table's row that a plan needs. */
#ifndef NOJIT_PY_ROW_H
#define NOJIT_PY_ROW_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "launch/row_facts.h"

extern PyTypeObject *py_row_type;

/* Returns the facts of an object of `py_row_type`, borrowed. */
const nj_row_facts *py_row_of(PyObject *row);

#endif
