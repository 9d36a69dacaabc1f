/* Programs of expressions in postfix, as Python asks for them. */
#ifndef NOJIT_ASSEMBLE_H
#define NOJIT_ASSEMBLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `assemble(text, values, slots, constant)`: the bytes of a program, empty if the text has none. */
PyObject *nj_assemble_text(PyObject *module, PyObject *args);

#endif
