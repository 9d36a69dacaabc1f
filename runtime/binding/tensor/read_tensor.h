/* Reading tensors of any framework: address, dtype and device, without importing the framework. */
#ifndef NOJIT_READ_TENSOR_H
#define NOJIT_READ_TENSOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tensor/dlpack_exchange.h"
#include "tensor/object_kinds.h"
#include "tensor/tensor_device.h"

#include "expr/value.h"

/* What a tensor without an exchange API of its own says of streams. */
typedef enum {
    PY_OF_TORCH = 1,    /* torch made it, or what it wraps: torch's current stream counts */
    PY_SAYS_STREAM = 2, /* its interface has an entry for the stream: a handle, or None if the data is ready */
} py_origin;

typedef struct {
    nj_value value;
    int device; /* an ordinal, or one of tensor_device.h's */
    py_kind kind; /* set for what is no tensor too */
    const DLPackExchangeAPI *api; /* of the framework, its own or that of the tensor it wraps; NULL if there is none */
    void *stream; /* of what has no API of its own: the stream that it says its data is in use on, or NULL */
    uint8_t origins; /* of what has none: bits of py_origin */
} py_tensor;

/* Tensors that were read a moment ago, by whom a call is made with them: what holds of them need not be asked again. */
typedef struct {
    PyObject *const *objects;
    const DLTensor *views; /* for each object that is a tensor with the exchange API */
    Py_ssize_t count;
} py_seen;

/* Makes a view of what has no dtype and no memory: what is left of it where a framework says that it has filled it in and
 * has not. */
static inline void py_clear_view(DLTensor *view)
{
    view->data = NULL;
    view->ndim = 0;
    view->dtype = (DLDataType){0, 0, 0};
}

/* Whether a tensor has elements, but no memory: a framework's stand-ins for tensors, say. */
static inline bool py_lacks_memory(const DLTensor *view)
{
    bool lacks = view->data == NULL;
    for (int32_t i = 0; i < view->ndim && lacks && view->shape != NULL; i++) {
        lacks = view->shape[i] != 0;
    }
    return lacks;
}

/* 1 if `object` is a tensor, 0 if it is none, -1 with an exception raised for `argument` of `kernel`. `seen` may be
 * NULL. */
int py_read_tensor(PyObject *object, const py_seen *seen, PyObject *kernel, PyObject *argument, py_tensor *tensor);

#endif
