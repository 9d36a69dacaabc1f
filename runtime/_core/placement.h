/* Where the images of a kernel lie. runtime/payload.py holds the rules and names the one that is broken. */
#ifndef NOJIT_PLACEMENT_H
#define NOJIT_PLACEMENT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `sum_groups(raw, images)`: sums over the lengths of so many images and the records of groups behind them, each as bytes of one
 * u64 more than there are things: of images before each group, of bytes before each image, of stored bytes before each group.
 * None if an image or a group breaks a rule. */
PyObject *nj_sum_groups(PyObject *module, PyObject *args);

#endif
