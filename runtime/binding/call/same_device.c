#include "call/same_device.h"

#include "python/exceptions.h"

int py_join_other_device(const py_signature *signature, Py_ssize_t at, PyObject *object, const py_tensor *tensor,
                         bool host_too, py_call *call, nj_value *pointer)
{
    if (tensor->device == PY_DEVICE_ANY || (tensor->device == PY_DEVICE_HOST && host_too)) {
        return 0;
    }
    if (tensor->device == PY_DEVICE_HOST) {
        return py_reach_host(call->device, object, signature->kernel, signature->names[at], pointer);
    }
    if (call->device == PY_DEVICE_ANY) {
        call->device = tensor->device;
        call->device_from = at;
        return 0;
    }
    py_refuse(signature->kernel, signature->names[at], PyUnicode_FromFormat("cuda:%d", tensor->device),
              "expected cuda:%d, where %U lies", call->device, signature->names[call->device_from]);
    return -1;
}
