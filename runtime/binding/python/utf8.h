/* Converts str and bytes to the engine's spans and back. */
#ifndef NOJIT_UTF8_H
#define NOJIT_UTF8_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "base/span.h"

/* Returns a new str of UTF-8 that may encode surrogates; NULL with an exception raised. */
static inline PyObject *py_text(nj_span utf8)
{
    return PyUnicode_DecodeUTF8((const char *)utf8.at, (Py_ssize_t)utf8.size, "surrogatepass");
}

static inline PyObject *py_bytes(nj_span span)
{
    return PyBytes_FromStringAndSize((const char *)span.at, (Py_ssize_t)span.size);
}

static inline nj_span py_span(PyObject *bytes)
{
    return (nj_span){(const unsigned char *)PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes)};
}

static inline nj_span py_buffer_span(const Py_buffer *buffer)
{
    return (nj_span){buffer->buf, (size_t)buffer->len};
}

/* Borrows the UTF-8 that a str caches. Returns false with an exception raised if `text` is no str or has surrogates. */
static inline bool py_borrow_text(PyObject *text, nj_span *utf8)
{
    Py_ssize_t size;
    const char *at = NULL;
    if (PyUnicode_Check(text)) {
        at = PyUnicode_AsUTF8AndSize(text, &size);
    } else {
        PyErr_Format(PyExc_TypeError, "expected a str, got %.100s", Py_TYPE(text)->tp_name);
    }
    *utf8 = at == NULL ? (nj_span){0} : (nj_span){(const unsigned char *)at, (size_t)size};
    return at != NULL;
}

/* Returns a str as new bytes of UTF-8, with surrogates encoded; NULL with an exception raised. */
static inline PyObject *py_encode_text(PyObject *text)
{
    if (!PyUnicode_Check(text)) {
        return PyErr_Format(PyExc_TypeError, "expected a str, got %.100s", Py_TYPE(text)->tp_name);
    }
    return PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
}

#endif
