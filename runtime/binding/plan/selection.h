/* A call set against a table, as a Python object: for who says why a variant does not serve, and for tools. */
#ifndef NOJIT_SELECTION_H
#define NOJIT_SELECTION_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Makes the type; once, at import. */
int py_selection_init(PyObject *module);

#endif
