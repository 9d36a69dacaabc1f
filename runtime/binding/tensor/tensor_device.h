/* Finds the device of a tensor. */
#ifndef NOJIT_TENSOR_DEVICE_H
#define NOJIT_TENSOR_DEVICE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tensor/dlpack_exchange.h"

#include "expr/value.h"

enum {
    PY_DEVICE_ANY = -1,  /* every device reaches the memory: it is managed or pinned, or the tensor is empty */
    PY_DEVICE_HOST = -2, /* no device reaches the memory */
    PY_DEVICE_UNSAID = -3, /* the tensor names no ordinal: ask the driver */
    PY_DEVICE_WRONG = -4,  /* the tensor names an invalid device */
};

/* Reads a DLPack device in the uncommon cases: host or managed memory, an AMD GPU, an empty tensor, an invalid ordinal. Returns 1, or
 * -1 with an exception raised for `argument` of `kernel`. */
int py_read_odd_device(DLDevice device, PyObject *kernel, PyObject *argument, int *out);

/* Parses a device such as "cuda:1" or "cpu". Returns PY_DEVICE_UNSAID for "cuda". */
int py_parse_device(const char *text);

/* Asks the driver for the device of an address. Returns 1, or -1 with an exception raised for `argument` of `kernel`. */
int py_find_device(uint64_t address, PyObject *kernel, PyObject *argument, int *device);

/* Replaces the host address of pinned memory by its address on the call's device, as Triton does. Returns 0, or -1 with an exception
 * raised if the memory is not pinned. `ordinal` is PY_DEVICE_ANY for the current device. */
int py_reach_host(int ordinal, PyObject *object, PyObject *kernel, PyObject *argument, nj_value *pointer);

#endif
