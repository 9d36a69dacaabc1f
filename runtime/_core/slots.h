/* Where the parameters of a compiled kernel come from, for kernels without tuples. runtime/table_rules.py holds the rules and
 * names the one that is broken; runtime/slots.py does it for all kernels. */
#ifndef NOJIT_SLOTS_H
#define NOJIT_SLOTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* What a variant is compiled for, and how it is passed. Borrowed. */
typedef struct {
    PyObject *params; /* of the table */
    PyObject *places; /* a dict: the number of each param among a call's arguments */
    PyObject *types, *hints;
    PyObject *layout; /* its text */
    PyObject *maps; /* its tensor maps */
} nj_passed;

/* As `Plan` takes them, tuples: what fills each parameter, the tensor maps, and the bytes of each parameter. Owned. */
typedef struct {
    PyObject *slots, *maps, *sizes;
} nj_packed;

/* False where the layout is not that of types and hints, or something is not gone into here; then an exception is raised only if
 * it is no fault of these. */
bool nj_pack_slots(const nj_passed *passed, nj_packed *packed);

void nj_packed_clear(nj_packed *packed);

#endif
