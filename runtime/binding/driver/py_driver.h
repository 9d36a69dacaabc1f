/* The engine's CUDA driver for Python: raises what fails, and waits without the GIL, which the holder of a lock of the engine may
 * need. */
#ifndef NOJIT_PY_DRIVER_H
#define NOJIT_PY_DRIVER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "driver/driver.h"

/* Notes what was enqueued last. */
void py_device_note(const nj_device *device, PyObject *label, const unsigned int grid[3]);

/* 0 with a driver that is ready, or -1 with DriverError raised. */
int py_need_driver(void);

/* A device that is ready; NULL with DriverError raised. */
nj_device *py_need_device(int ordinal);

/* The ordinal of the current context's device, 0 if there is no context; -1 with DriverError raised. */
int py_find_current_device(void);

/* Raises a DriverError of the engine at `where`; both may be NULL. */
void py_raise_driver(const nj_error *error, const nj_device *device, PyObject *where);

/* Raises the DriverError of a forked process. */
void py_raise_forked(PyObject *where);

#endif
