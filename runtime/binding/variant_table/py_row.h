/* Rows of variant tables for Python: what the engine reads of one to make a plan. */
#ifndef NOJIT_PY_ROW_H
#define NOJIT_PY_ROW_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "launch/row.h"

extern PyTypeObject *py_row_type;

/* Makes the type; once, at import. */
int py_row_init(PyObject *module);

/* What an object of that type holds. */
const nj_row_facts *py_row_of(PyObject *row);

/* `row_constexprs(table, row)`: what each constexpr and option is for a row, as a dict. */
PyObject *py_row_constexprs_of(PyObject *module, PyObject *args);

/* `map_fault(kind, swizzle, element_bytes, element_type, block, fp4_padded)`: what a tensor map lacks to be a descriptor's; None if
 * nothing. */
PyObject *py_map_fault(PyObject *module, PyObject *args);

#endif
