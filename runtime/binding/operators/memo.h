/* Memos: recipes of calls that were checked, by all that the checks looked at. */
#ifndef NOJIT_MEMO_H
#define NOJIT_MEMO_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Makes the type; once, at import. */
int py_memo_init(PyObject *module);

#endif
