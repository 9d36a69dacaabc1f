/* Launchers: `kernel[grid]` and `kernel.bind` return a kernel with its grid and its bound arguments. */
#ifndef NOJIT_LAUNCHER_H
#define NOJIT_LAUNCHER_H

#include "kernel/dispatcher.h"

typedef enum {
    PY_GRID_FIXED,
    PY_GRID_CALLABLE,
    PY_GRID_OF_BUNDLE,
} py_grid_kind;

typedef struct py_launcher {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    py_dispatcher *kernel;
    py_grid_kind kind;
    PyObject *callable; /* owned; NULL unless `kind` is PY_GRID_CALLABLE */
    int64_t grid[3];
    py_fixed fixed;
    PyObject *served; /* the `Served` that made the launcher, owned; NULL unless it is for a function of Triton */
    PyObject *asked;  /* the caller's grid object, owned; NULL if `served` is */
} py_launcher;

/* Returns a new launcher without bound arguments, which the caller has to pass to PyObject_GC_Track; NULL with an exception raised.
 * `grid` is NULL for the bundle's grid. */
py_launcher *py_launcher_make(py_dispatcher *kernel, PyObject *grid);

/* `kernel[grid]`. */
PyObject *py_launcher_subscript(py_dispatcher *kernel, PyObject *grid);

/* `kernel.bind(grid=None, /, **fixed)`. */
PyObject *py_launcher_bind(py_dispatcher *kernel, PyObject *const *arguments, Py_ssize_t positional,
                           PyObject *keywords);

#endif
