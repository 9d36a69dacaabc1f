/* Where the parameters of a compiled kernel come from, for kernels without tuples and descriptors. runtime/table_rules.py holds the
 * rules and names the one that is broken; runtime/slots.py does it for all kernels. */
#ifndef NOJIT_SLOTS_H
#define NOJIT_SLOTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* What fills each parameter, as `Plan` takes it, and the bytes of each: tuples. `params` are those of a table, `places` a dict of
 * their numbers among a call's arguments, `types` and `hints` those of a variant, `text` its layout. False where the layout is not
 * that of the types and hints, or something is not gone into here; then an exception is raised only if it is no fault of these. */
bool nj_plain_slots(PyObject *params, PyObject *places, PyObject *types, PyObject *hints, PyObject *text, PyObject **slots,
                    PyObject **sizes);

#endif
