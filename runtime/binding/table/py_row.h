/* Rows of variant tables for Python: what the engine reads of one to make a plan. */
#ifndef NOJIT_PY_ROW_H
#define NOJIT_PY_ROW_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "launch/row_facts.h"

extern PyTypeObject *py_row_type;

/* What an object of that type holds. */
const nj_row_facts *py_row_of(PyObject *row);

#endif
