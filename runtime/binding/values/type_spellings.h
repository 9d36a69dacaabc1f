/* Types as signatures name them (engine/table/type_name.h), for Python. */
#ifndef NOJIT_TYPE_SPELLINGS_H
#define NOJIT_TYPE_SPELLINGS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `is_type(text)`: whether it is a type, in its one spelling. */
PyObject *py_is_type_of(PyObject *module, PyObject *text);

/* `constant_of(type)`: the value of a constant. Raises ValueError for any other text. */
PyObject *py_constant_of(PyObject *module, PyObject *type);

/* `leaves(type, path)`: path and type of each leaf. */
PyObject *py_leaves_of(PyObject *module, PyObject *args);

/* `members(type)`: the members of a tuple, in a list. */
PyObject *py_members_of(PyObject *module, PyObject *type);

/* `descriptor_parts(type)`: the element and the block of a descriptor. */
PyObject *py_descriptor_parts_of(PyObject *module, PyObject *type);

/* `param_bytes(type)`: the bytes of a parameter of the compiled kernel; 0 for a type that no single parameter has. */
PyObject *py_param_bytes_of(PyObject *module, PyObject *type);

/* `element_name(text)`, `dtype_name(text)`: an element in the spelling of types, or of Triton's dtypes; None if the text names none. */
PyObject *py_element_name_of(PyObject *module, PyObject *text);
PyObject *py_dtype_name_of(PyObject *module, PyObject *text);

/* `dtypes()`: of each dtype its name in types, its kind, its bytes, and whether a param can be one. */
PyObject *py_dtypes_of(PyObject *module, PyObject *none);

/* `dtype_words()`: every name of a dtype, without a module's. */
PyObject *py_dtype_words(PyObject *module, PyObject *none);

#endif
