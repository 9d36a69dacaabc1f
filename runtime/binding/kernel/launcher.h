/* A kernel with its grid, and perhaps some of its arguments: what `kernel[grid]` and `kernel.bind` give. */
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
    PyObject *callable; /* NULL but for PY_GRID_CALLABLE */
    int64_t grid[3];
    py_fixed fixed;
    PyObject *served; /* the `Served` that made it, and the grid as it was given; NULL but for functions of Triton */
    PyObject *asked;
} py_launcher;

/* A launcher without fixed arguments, which the garbage collector does not track yet; NULL with an exception raised. `grid` is NULL
 * for the bundle's. */
py_launcher *py_launcher_make(py_dispatcher *kernel, PyObject *grid);

/* `kernel[grid]`. */
PyObject *py_launcher_subscript(py_dispatcher *kernel, PyObject *grid);

/* `kernel.bind(grid=None, /, **fixed)`. */
PyObject *py_launcher_bind(py_dispatcher *kernel, PyObject *const *arguments, Py_ssize_t positional,
                           PyObject *keywords);

#endif
