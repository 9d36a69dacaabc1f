/* Converts Python ints to the engine's values. */
#ifndef NOJIT_PY_VALUE_H
#define NOJIT_PY_VALUE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "expr/value.h"
#include "select/coerced_call.h"

/* Reads an int that is no bool. An int of more than 64 bits gets NJ_TAG_UNKNOWN, and the slow path words the error. */
static inline void py_read_int(PyObject *object, nj_value *value)
{
    int overflow;
    value->bits = PyLong_AsLongLongAndOverflow(object, &overflow);
    value->tag = NJ_TAG_INT;
    if (overflow == 0) {
        return;
    }
    *value = (nj_value){.tag = NJ_TAG_UNKNOWN, .bits = NJ_UNKNOWN_INT};
    if (overflow > 0) {
        unsigned long long number = PyLong_AsUnsignedLongLong(object);
        if (PyErr_Occurred()) {
            PyErr_Clear();
        } else {
            *value = (nj_value){.tag = NJ_TAG_UINT, .bits = (int64_t)number};
        }
    }
}

#endif
