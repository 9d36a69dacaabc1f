/* Converts the engine's constants to Python objects. Every function needs the GIL. */
#ifndef NOJIT_MAKE_VALUE_H
#define NOJIT_MAKE_VALUE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/span.h"

struct nj_constant;

enum { PY_KEPT_TEXTS = 64 };

/* A cache of str objects, one for each hash, since a table repeats a few texts many times. */
typedef struct {
    struct {
        nj_span text;
        PyObject *object;
    } kept[PY_KEPT_TEXTS];
} py_texts;

void py_texts_clear(py_texts *texts);

/* Returns a str of UTF-8 as a new reference, from the cache if it has one; NULL with an exception raised. */
PyObject *py_texts_make(py_texts *texts, nj_span utf8);

/* Returns a constant as a value of runtime/values.py, a new reference; NULL with an exception raised. */
PyObject *py_make_value(py_texts *texts, const struct nj_constant *constant);

/* Does the same as `py_make_value`, without a cache of texts. */
PyObject *py_make_one_value(const struct nj_constant *constant);

#endif
