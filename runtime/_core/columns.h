/* The columns of a variant table. */
#ifndef NOJIT_COLUMNS_H
#define NOJIT_COLUMNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NJ_COLUMNS = 8,
    NJ_POINTING_COLUMNS = 6, /* the first six point into pools: into one of so many entries each */
    NJ_KEY_COLUMNS = 4,      /* rows ascend strictly by the first four together */
};

/* Whether columns of `rows` numbers each, one after the other, keep every rule. */
bool nj_columns_right(const unsigned char *columns, size_t rows, const size_t sizes[NJ_POINTING_COLUMNS]);

/* Finds the class of arrays; once, at import. */
int nj_columns_init(void);

/* The same columns as arrays: a dict by their names. */
PyObject *nj_columns_make(const unsigned char *columns, size_t rows);

#endif
