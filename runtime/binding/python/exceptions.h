/* Raises the errors of runtime/errors.py. Every function needs the GIL. */
#ifndef NOJIT_EXCEPTIONS_H
#define NOJIT_EXCEPTIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "nojit.h"

/* Raises ArgumentError at `argument` of `kernel`, or at the whole call if `argument` is NULL. Steals `got`, which may be NULL. Keeps a
 * pending exception instead, if there is one. */
void py_refuse(PyObject *kernel, PyObject *argument, PyObject *got, const char *what_format, ...);

/* Replaces the pending exception by an ArgumentError at `argument` that quotes its first line and has it as __cause__. Also raises one
 * if no exception is pending. */
void py_refuse_pending(PyObject *kernel, PyObject *argument, const char *what);

/* Clears the pending exception and returns it as a new reference if it is a NoMatchingVariantError; else returns NULL and leaves it
 * pending. */
PyObject *py_take_miss(void);

/* Does the same for a NoMatchingVariantError or an ArgumentError. */
PyObject *py_take_refusal(void);

/* Raises TypeError for a dtype that Triton lacks, with the most similar name of one that it has. */
void py_refuse_dtype(PyObject *dtype);

/* True if a class is BundleError or derives from it. */
bool py_is_bundle_error(PyObject *type);

/* Raises the engine's error at ``str(where)``, as the class that docs/c-api.md lists for its code. `where` is a path if a system call
 * failed. Returns NULL. */
PyObject *py_raise(const nj_error *error, PyObject *where);

/* Raises DriverError at ``str(where)``; `name`, `what` and `where` may be NULL. */
void py_driver_error(const char *call, int code, const char *name, PyObject *what, PyObject *where);

/* Returns a new str such as "int 3" or "str 'x'"; only the type's name for an object that is no number or str. */
PyObject *py_describe(PyObject *object);

#endif
