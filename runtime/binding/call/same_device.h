/* Requires that all tensors of a call lie on one device, or in memory that every device reaches. */
#ifndef NOJIT_SAME_DEVICE_H
#define NOJIT_SAME_DEVICE_H

#include "call/bound_call.h"

/* The slow path of `py_join_device`, for a tensor whose device differs from the call's device so far. */
int py_join_other_device(const py_signature *signature, Py_ssize_t at, PyObject *object, const py_tensor *tensor,
                         bool host_too, py_call *call, nj_value *pointer);

/* Adds a tensor's device, exchange API and stream to the call. Returns 0, or -1 with an exception raised if the tensor lies on another
 * device than those before it, or in memory that the device does not reach. */
static inline int py_join_device(const py_signature *signature, Py_ssize_t at, PyObject *object, const py_tensor *tensor,
                                 bool host_too, py_call *call, nj_value *pointer)
{
    if (call->api == NULL) {
        call->api = tensor->api;
    }
    if (tensor->kind == PY_KIND_OTHER) {
        call->stream = call->stream == NULL ? tensor->stream : call->stream;
        call->origins |= tensor->origins;
    }
    return tensor->device == call->device
               ? 0
               : py_join_other_device(signature, at, object, tensor, host_too, call, pointer);
}

#endif
