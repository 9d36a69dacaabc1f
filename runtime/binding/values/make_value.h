/* Python objects of the engine's values: what tables and types hold, for Python. Every function needs the GIL. */
#ifndef NOJIT_MAKE_VALUE_H
#define NOJIT_MAKE_VALUE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/span.h"

struct nj_constant;

enum { PY_KEPT_TEXTS = 64 };

/* Texts that were made lately. Most of a table is a few texts over and over: the last of each hash is kept. */
typedef struct {
    struct {
        nj_span text;
        PyObject *object;
    } kept[PY_KEPT_TEXTS];
} py_texts;

void py_texts_clear(py_texts *texts);

/* A str of UTF-8, perhaps one that was made before; NULL with an exception raised. */
PyObject *py_texts_make(py_texts *texts, nj_span utf8);

/* The value of a constant, as runtime/values.py has it, new; NULL with an exception raised. */
PyObject *py_make_value(py_texts *texts, const struct nj_constant *constant);

/* The value of a single constant. */
PyObject *py_make_one_value(const struct nj_constant *constant);

#endif
