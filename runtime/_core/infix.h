/* Expressions as manifests write them, made into postfix: the grammar is that of runtime/expr.py. */
#ifndef NOJIT_INFIX_H
#define NOJIT_INFIX_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The postfix of an expression: a str, or None if the text is no expression. NULL with an exception raised. */
PyObject *nj_postfix(PyObject *text);

/* `postfix(text)`. */
PyObject *nj_postfix_of(PyObject *module, PyObject *text);

#endif
