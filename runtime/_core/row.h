/* A row of a variant table, as a plan takes it: what its constexprs are, the programs of its grid, what fills its parameters. */
#ifndef NOJIT_ROW_H
#define NOJIT_ROW_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `plain_row(table, row, launch, places, arch, constant)`: what the image of a row is held against, and of `Plan` the arguments that
 * the row gives, by name; None for a kernel with tuples, or where a rule is broken, which runtime/slots.py names.
 * `launch` is the row's, `places` the numbers of params among a call's arguments, `constant` as of `assemble`. */
PyObject *nj_plain_row(PyObject *module, PyObject *args);

#endif
