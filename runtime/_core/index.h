/* The index of a bundle, read whole. runtime/index_rules.py holds the rules and names the one that is broken. */
#ifndef NOJIT_INDEX_H
#define NOJIT_INDEX_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `read_index(json, Section, KernelEntry, TargetInfo)`: the fields of an index in the order of the JSON, if it keeps every rule;
 * None if one is broken or something is not gone into here. */
PyObject *nj_read_index(PyObject *module, PyObject *args);

#endif
