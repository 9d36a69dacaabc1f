/* Constexprs between Python and the engine. Every function needs the GIL. */
#ifndef NOJIT_PY_CONSTANT_H
#define NOJIT_PY_CONSTANT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "table/constant.h"

/* A kind that no constant of a table has: of an int of more than 64 bits, a string that is no UTF-8. */
#define PY_CONSTANT_FOREIGN 255

/* Memory that is freed together. */
typedef struct py_pile {
    struct py_pile *next;
    uint64_t memory[];
} py_pile;

/* Memory for so many bytes; NULL with MemoryError raised. */
void *py_pile_take(py_pile **pile, size_t size);
void py_pile_free(py_pile *pile);

/* Reads a value of runtime/values.py, whose texts it borrows: 0, or -1 with an exception raised. */
int py_constant_from(PyObject *value, py_pile **pile, nj_constant *constant);

/* Whether a value is None, a bool, an int, a float or a string, and of no class derived from these. */
bool py_is_simple(PyObject *value);

#endif
