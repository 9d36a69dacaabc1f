/* How a tensor map is encoded against the type of the descriptor that it is of. */
#ifndef NOJIT_MAPPING_H
#define NOJIT_MAPPING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* What a map must be and is not: a str, or None if nothing; NULL with an exception raised. `type` is a descriptor's, as
 * ``tensordesc<fp16[128,64]>``; `map` a TensorMap. */
PyObject *nj_map_fault(PyObject *type, PyObject *map);

/* `map_fault(type, map)`. */
PyObject *nj_map_fault_of(PyObject *module, PyObject *args);

#endif
