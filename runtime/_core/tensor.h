/* Reading tensors of any framework: address, dtype and device, without importing the framework. */
#ifndef NOJIT_TENSOR_H
#define NOJIT_TENSOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "dlpack.h"
#include "value.h"

enum {
    NJ_DEVICE_ANY = -1,  /* managed or pinned memory, an empty tensor: every device reaches it */
    NJ_DEVICE_HOST = -2, /* memory that no device reaches */
    NJ_DEVICE_UNSAID = -3, /* the tensor does not say: the driver will */
};

typedef struct {
    nj_value value;
    int device; /* an ordinal, or one of the above */
    const DLPackExchangeAPI *api; /* of the framework; NULL if it has none */
} nj_tensor;

/* Prepares the names that are looked up; once, at import. */
int nj_tensor_init(void);

/* 1 if `object` is a tensor, 0 if it is none, -1 with an exception raised for `argument` of `kernel`. */
int nj_read_tensor(PyObject *object, PyObject *kernel, PyObject *argument, nj_tensor *tensor);

#endif
