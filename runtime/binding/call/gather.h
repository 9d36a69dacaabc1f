/* Positional arguments that a kernel with `*args` takes as one tuple. */
#ifndef NOJIT_GATHER_H
#define NOJIT_GATHER_H

#include "call/signature.h"

/* Arguments of a kernel with `*args`, with those that it takes as a tuple, given by name behind the keywords. */
typedef struct {
    PyObject **values; /* owned, borrowing all but the tuple, the last */
    PyObject *keywords;
    Py_ssize_t positional;
} py_gathered;

/* Gathers the arguments behind the kernel's own: 0, or -1 with an exception raised. */
int py_gather(const py_signature *signature, PyObject *const *arguments, Py_ssize_t positional, PyObject *keywords,
              py_gathered *gathered);
void py_gathered_clear(py_gathered *gathered);

#endif
