/* Where the images of a kernel lie. runtime/payload.py holds the rules and names the one that is broken. */
#ifndef NOJIT_PLACEMENT_H
#define NOJIT_PLACEMENT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `check_groups(raw, images, payload_bytes)`: whether the lengths of so many images and the records of groups behind them keep
 * every rule, and the groups are so many stored bytes in all. */
PyObject *nj_check_groups(PyObject *module, PyObject *args);

/* `find_image(raw, images, image)`: where an image of checked groups lies, as `Place` of runtime/payload.py has it: its group;
 * where that starts among the stored bytes, how many it has, stored and raw, and their SHA-256; and where the image starts and
 * ends in it. IndexError if there is none. */
PyObject *nj_find_image(PyObject *module, PyObject *args);

#endif
