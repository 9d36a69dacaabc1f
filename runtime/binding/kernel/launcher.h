/* A kernel with its grid, and perhaps some of its arguments: what `kernel[grid]` and `kernel.bind` give. */
#ifndef NOJIT_LAUNCHER_H
#define NOJIT_LAUNCHER_H

#include "kernel/dispatcher.h"

typedef enum {
    NJ_GRID_FIXED,
    NJ_GRID_CALLABLE,
    NJ_GRID_OF_BUNDLE,
} nj_grid_kind;

typedef struct nj_launcher {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    nj_dispatcher *kernel;
    nj_grid_kind kind;
    PyObject *callable; /* NULL but for NJ_GRID_CALLABLE */
    int64_t grid[3];
    nj_fixed fixed;
    PyObject *served; /* the `Served` that made it, and the grid as it was given; NULL but for functions of Triton */
    PyObject *asked;
} nj_launcher;

/* Makes the type; once, at import. */
int nj_launcher_init(PyObject *module);

/* A launcher without fixed arguments, which the garbage collector does not track yet; NULL with an exception raised. `grid` is NULL
 * for the bundle's. */
nj_launcher *nj_launcher_make(nj_dispatcher *kernel, PyObject *grid);

/* `kernel[grid]`. */
PyObject *nj_launcher_subscript(nj_dispatcher *kernel, PyObject *grid);

/* `kernel.bind(grid=None, /, **fixed)`. */
PyObject *nj_launcher_bind(nj_dispatcher *kernel, PyObject *const *arguments, Py_ssize_t positional,
                           PyObject *keywords);

#endif
