/* Gets optional attributes of objects and optional keys of dicts. */
#ifndef NOJIT_ATTRIBUTES_H
#define NOJIT_ATTRIBUTES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Returns an attribute as a new reference; NULL without an exception if it is missing, or with one if getting it failed. */
PyObject *py_optional_attribute(PyObject *object, PyObject *name);

/* Returns the value of a key as a new reference; NULL without an exception if it is missing, or with one if the lookup failed. */
static inline PyObject *py_dict_get(PyObject *dict, PyObject *key)
{
#if PY_VERSION_HEX >= 0x030d0000
    PyObject *value;
    (void)PyDict_GetItemRef(dict, key, &value);
    return value;
#else
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
#endif
}

#endif
