/* Reads address, dtype and device of any framework's tensor, without importing the framework. */
#ifndef NOJIT_READ_TENSOR_H
#define NOJIT_READ_TENSOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tensor/dlpack_exchange.h"
#include "tensor/object_kinds.h"
#include "tensor/tensor_device.h"

#include "expr/value.h"

/* Flags about the stream of a tensor whose type has no exchange API. */
typedef enum {
    PY_OF_TORCH = 1,    /* torch made the tensor, or the one it wraps: use torch's current stream */
    PY_SAYS_STREAM = 2, /* the array interface has a stream entry: a handle, or None if the data is ready */
} py_origin;

typedef struct {
    nj_value value; /* pointer and dtype */
    int device;     /* an ordinal, or a constant of tensor_device.h */
    py_kind kind;   /* set even if the object is no tensor */
    const DLPackExchangeAPI *api; /* of the tensor's type, or of the tensor that it wraps; NULL if neither has one */
    void *stream;    /* stream that the array interface names, or NULL; not set for PY_KIND_EXCHANGE */
    uint8_t origins; /* bits of py_origin; not set for PY_KIND_EXCHANGE */
} py_tensor;

/* Tensors that the caller has just read, so that a launch need not ask the framework for their views again. */
typedef struct {
    PyObject *const *objects;
    const DLTensor *views; /* one for each object; not set if the object is None */
    Py_ssize_t count;
} py_seen;

/* Clears a view before a framework fills it in: if the framework reports success without doing so, the view has no memory and no
 * dtype. */
static inline void py_clear_view(DLTensor *view)
{
    view->data = NULL;
    view->ndim = 0;
    view->dtype = (DLDataType){0, 0, 0};
}

/* True if a tensor has elements but no memory, such as a framework's placeholder. */
static inline bool py_lacks_memory(const DLTensor *view)
{
    bool lacks = view->data == NULL;
    for (int32_t i = 0; i < view->ndim && lacks && view->shape != NULL; i++) {
        lacks = view->shape[i] != 0;
    }
    return lacks;
}

/* Reads a tensor. Returns 1, 0 if `object` is no tensor, or -1 with an exception raised for `argument` of `kernel`. `seen` may be
 * NULL. */
int py_read_tensor(PyObject *object, const py_seen *seen, PyObject *kernel, PyObject *argument, py_tensor *tensor);

#endif
