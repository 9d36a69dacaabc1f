/* Converts constexpr values from Python to the engine. Every function needs the GIL. */
#ifndef NOJIT_PY_CONSTANT_H
#define NOJIT_PY_CONSTANT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "table/constant.h"

/* Kind of a value that no table can contain, such as an int of more than 64 bits or a str with surrogates. */
#define PY_CONSTANT_FOREIGN 255

/* An arena: blocks of memory that are freed together. */
typedef struct py_pile {
    struct py_pile *next;
    uint64_t memory[];
} py_pile;

/* Allocates `size` bytes; NULL with MemoryError raised. */
void *py_pile_take(py_pile **pile, size_t size);
void py_pile_free(py_pile *pile);

/* Reads a value of runtime/values.py, and borrows its texts. Returns 0, or -1 with an exception raised. */
int py_constant_from(PyObject *value, py_pile **pile, nj_constant *constant);

/* True if a value is None, or exactly a bool, int, float or str. */
bool py_is_simple(PyObject *value);

#endif
