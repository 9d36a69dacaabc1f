/* Where the parameters of a compiled kernel come from, for kernels without tuples and descriptors. runtime/table_rules.py holds the
 * rules and names the one that is broken; runtime/slots.py does it for all kernels. */
#ifndef NOJIT_SLOTS_H
#define NOJIT_SLOTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `plain_slots(names, types, places, hints, layout)`: what fills each parameter, as `Plan` takes it, and the bytes of each; None
 * where the layout is not that of the types and hints, or something is not gone into here. `names`, `types` and `places` are of the
 * runtime params: `places` their numbers among a call's arguments. `hints` are pairs of a name and 1 or 16; `layout` is text. */
PyObject *nj_plain_slots(PyObject *module, PyObject *args);

#endif
