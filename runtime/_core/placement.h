/* Where the images of a bundle lie. runtime/payload.py holds the rules and names the one that is broken. */
#ifndef NOJIT_PLACEMENT_H
#define NOJIT_PLACEMENT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `sum_groups(images, groups)`: sums over the images section and the groups section, each as bytes of one u64 more than there are
 * things: of images before each group, of bytes before each image, of stored bytes before each group. None if an image or a group
 * breaks a rule. */
PyObject *nj_sum_groups(PyObject *module, PyObject *args);

#endif
