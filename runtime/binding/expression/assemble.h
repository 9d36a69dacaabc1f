/* Expressions in postfix and their programs, as Python asks for them. */
#ifndef NOJIT_ASSEMBLE_H
#define NOJIT_ASSEMBLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/span.h"

/* The bytes of a program over `values` and `slots`, dicts by name; empty if the text has none. `constant` gives the instruction
 * that pushes a value which is neither int, bool nor None. NULL with an exception raised. */
PyObject *py_assemble_words(nj_span words, PyObject *values, PyObject *slots, PyObject *constant);

/* `assemble(text, values, slots, constant)`: the bytes of a program, empty if the text has none. */
PyObject *py_assemble_text(PyObject *module, PyObject *args);

/* The postfix of an expression: a str, or why the text is none as `(what, column)`. NULL with an exception raised. */
PyObject *py_words_of(PyObject *text);

/* `postfix(text)`. */
PyObject *py_postfix_of(PyObject *module, PyObject *text);

#endif
