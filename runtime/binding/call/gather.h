/* Gathers the extra positional arguments of a kernel with `*args` into one tuple. */
#ifndef NOJIT_GATHER_H
#define NOJIT_GATHER_H

#include "call/signature.h"

/* Arguments of a kernel with `*args`. The tuple is passed by name, after the caller's keywords. */
typedef struct {
    PyObject **values; /* owned array of borrowed references; the last, the tuple, is owned */
    PyObject *keywords;    /* tuple of str; owned */
    Py_ssize_t positional; /* number of positional arguments */
} py_gathered;

/* Gathers the positional arguments that exceed the kernel's other params. Returns 0, or -1 with an exception raised. */
int py_gather(const py_signature *signature, PyObject *const *arguments, Py_ssize_t positional, PyObject *keywords,
              py_gathered *gathered);
void py_gathered_clear(py_gathered *gathered);

#endif
