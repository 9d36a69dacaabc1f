/* Helpers for the import of the module: they add objects to it, and intern and import what files use. All run under the import lock. */
#ifndef NOJIT_AT_IMPORT_H
#define NOJIT_AT_IMPORT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct {
    PyObject **string;
    const char *text;
} py_interned;

/* Interns strings, up to an entry whose text is NULL. Returns 0, or -1 with an exception raised. */
int py_intern(const py_interned *wanted);

/* Imports an attribute of a module. Returns 0, or -1 with an exception raised. */
int py_import(const char *module, const char *name, PyObject **object);

/* Imports a module for its side effects. Returns 0, or -1 with an exception raised. */
int py_import_only(const char *module);

typedef struct {
    const char *name;
    long long value;
} py_number;

/* Adds constants to the module, up to an entry whose name is NULL. Returns 0, or -1 with an exception raised. */
int py_add_numbers(PyObject *module, const py_number *numbers);

typedef struct {
    const char *name;
    const char *text;
} py_named_text;

/* Adds texts to the module, up to an entry whose name is NULL. Returns 0, or -1 with an exception raised. */
int py_add_texts(PyObject *module, const py_named_text *texts);

/* Adds a tuple of texts to the module. Returns 0, or -1 with an exception raised. */
int py_add_list(PyObject *module, const char *name, const char *const *texts, size_t count);

/* Adds an object to the module. Returns 0, or -1 with an exception raised. Steals `object`, which may be NULL with an exception
 * raised. */
int py_add_object(PyObject *module, const char *name, PyObject *object);

/* Makes a type, stores it in `type`, and adds it to the module. Returns 0, or -1 with an exception raised. */
int py_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type);

#endif
