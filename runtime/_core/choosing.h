/* Choosing the variant that serves a call. runtime/selection.py holds the rules and says why a variant does not fit; here a
 * call is judged that asks for nothing rare, and every other is left to Python. Every function needs the GIL. */
#ifndef NOJIT_CHOOSING_H
#define NOJIT_CHOOSING_H

#include "spec.h"

enum {
    NJ_UNSURE = -1, /* Python decides, or says why nothing serves the call */
    NJ_FAILED = -2, /* an exception is raised */
};

/* A call, and the table that it is judged by. */
typedef struct {
    PyObject *owner; /* the kernel, whose `_prefer` orders configs */
    const nj_signature *signature;
    const nj_spec *spec;
    const nj_call *call;
    const nj_key *key;
} nj_choosing;

/* The row of the spec's table that serves a call whose key was made; NJ_UNSURE or NJ_FAILED. */
Py_ssize_t nj_choose(const nj_choosing *it);

#endif
