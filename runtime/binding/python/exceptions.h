/* Raising the typed errors of runtime/errors.py. Every function needs the GIL. */
#ifndef NOJIT_EXCEPTIONS_H
#define NOJIT_EXCEPTIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "nojit.h"

/* Raises ArgumentError at `argument` (NULL: the call as a whole) of `kernel`; steals `got`, which may be NULL. A pending
 * exception stays instead. */
void py_refuse(PyObject *kernel, PyObject *argument, PyObject *got, const char *what_format, ...);

/* Turns the pending exception into an ArgumentError at `argument` that quotes its first line, cause included; raises one too
 * where code that failed has raised nothing. */
void py_refuse_pending(PyObject *kernel, PyObject *argument, const char *what);

/* Takes the pending exception if it is a NoMatchingVariantError: new; NULL if it is another, which stays pending. */
PyObject *py_take_miss(void);

/* Takes the pending exception if it is a NoMatchingVariantError or an ArgumentError, as `py_take_miss` does. */
PyObject *py_take_refusal(void);

/* Raises TypeError for a dtype that Triton has not; says which of those it has is spelled nearest. */
void py_refuse_dtype(PyObject *dtype);

/* Whether a class of exceptions is BundleError, or derived from it. */
bool py_is_bundle_error(PyObject *type);

/* Raises what the engine found, as the error of its code in docs/c-api.md, at ``str(where)``: a path for a failed system call.
 * Returns NULL. */
PyObject *py_raise(const nj_error *error, PyObject *where);

/* Raises DriverError at ``str(where)``; `name`, `what` and `where` may be NULL. */
void py_driver_error(const char *call, int code, const char *name, PyObject *what, PyObject *where);

/* "int 3", "str 'x'", or the type alone where a value says nothing. */
PyObject *py_describe(PyObject *object);

#endif
