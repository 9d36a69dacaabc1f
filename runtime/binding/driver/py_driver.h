/* Calls the engine's driver for Python: raises its errors, and releases the GIL, since a thread that holds a lock of the engine may be
 * waiting for the GIL. */
#ifndef NOJIT_PY_DRIVER_H
#define NOJIT_PY_DRIVER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "driver/driver.h"

/* Records the last launch on a device, for the text of later errors. */
void py_device_note(const nj_device *device, PyObject *label, const unsigned int grid[3]);

/* Initializes the driver if needed. Returns 0, or -1 with DriverError raised. */
int py_need_driver(void);

/* Returns an initialized device; NULL with DriverError raised. */
nj_device *py_need_device(int ordinal);

/* Returns the ordinal of the current context's device, 0 if there is no context; -1 with DriverError raised. */
int py_find_current_device(void);

/* Raises the engine's error as a DriverError at `where`. `device` and `where` may be NULL. */
void py_raise_driver(const nj_error *error, const nj_device *device, PyObject *where);

/* Raises the DriverError for a process that was forked after the driver was initialized. `where` may be NULL. */
void py_raise_forked(PyObject *where);

#endif
