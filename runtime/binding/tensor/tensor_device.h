/* On which device an argument lies. */
#ifndef NOJIT_TENSOR_DEVICE_H
#define NOJIT_TENSOR_DEVICE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tensor/dlpack_exchange.h"

#include "expr/value.h"

enum {
    PY_DEVICE_ANY = -1,  /* managed or pinned memory, an empty tensor: every device reaches it */
    PY_DEVICE_HOST = -2, /* memory that no device reaches */
    PY_DEVICE_UNSAID = -3, /* the tensor does not say: the driver will */
    PY_DEVICE_WRONG = -4,  /* what no device is called */
};

/* Reads what DLPack says of a tensor that lies on no ordinal of CUDA's: 1, or -1 with an exception raised for `argument` of `kernel`. */
int py_read_odd_device(DLDevice device, PyObject *kernel, PyObject *argument, int *out);

/* Reads "cuda:1", "cuda", "cpu" and the like; "cuda" alone leaves the driver to say which. */
int py_parse_device(const char *text);

/* Asks the driver where an address lies: 1, or -1 with an exception raised for `argument` of `kernel`. */
int py_find_device(uint64_t address, PyObject *kernel, PyObject *argument, int *device);

/* Replaces the address of pinned host memory by the one that the device of the call knows it by, as Triton does: 0, or -1 with an
 * exception raised where no device reaches the memory. `ordinal` is PY_DEVICE_ANY for the current device. */
int py_reach_host(int ordinal, PyObject *object, PyObject *kernel, PyObject *argument, nj_value *pointer);

#endif
