/* What an object or a dict may have or not. */
#ifndef NOJIT_ATTRIBUTES_H
#define NOJIT_ATTRIBUTES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The attribute, new; NULL without an exception where there is none, with one where getting it failed. */
PyObject *py_optional_attribute(PyObject *object, PyObject *name);

/* The value of a key, new; NULL without an exception where there is none. */
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
