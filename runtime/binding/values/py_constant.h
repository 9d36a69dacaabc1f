/* Constexprs between Python and the engine. Every function needs the GIL. */
#ifndef NOJIT_PY_CONSTANT_H
#define NOJIT_PY_CONSTANT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "table/constant.h"

/* A kind that no constant of a table has: of an int of more than 64 bits, a string that is no UTF-8. */
#define NJ_CONSTANT_FOREIGN 255

/* Memory that is freed together. */
typedef struct nj_pile {
    struct nj_pile *next;
    uint64_t memory[];
} nj_pile;

/* Memory for so many bytes; NULL with MemoryError raised. */
void *nj_pile_take(nj_pile **pile, size_t size);
void nj_pile_free(nj_pile *pile);

/* Reads a value of runtime/values.py, whose texts it borrows: 0, or -1 with an exception raised. */
int nj_constant_from(PyObject *value, nj_pile **pile, nj_constant *constant);

/* Whether a value is None, a bool, an int, a float or a string, and of no class derived from these. */
bool nj_is_simple(PyObject *value);

#endif
