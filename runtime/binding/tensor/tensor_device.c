#include "tensor/tensor_device.h"

#include "driver/py_driver.h"
#include "python/exceptions.h"

#include "driver/query.h"

/* True if the memory is on a GPU of the vendor whose driver this process uses. */
static bool is_drivers(int32_t device_type)
{
    if (!py_is_gpu(device_type)) {
        return false;
    }
    (void)nj_driver_find(); /* sets nj_vendor_found */
    return device_type == nj_vendor_found->dlpack_device;
}

int py_read_odd_device(DLDevice device, PyObject *kernel, PyObject *argument, int *out)
{
    bool known = is_drivers(device.device_type);
    if (known && device.device_id >= 0) {
        *out = device.device_id; /* an empty tensor, or one on an AMD GPU */
        return 1;
    }
    if (known) {
        PyObject *got = PyUnicode_FromFormat("cuda:%d", (int)device.device_id);
        py_refuse(kernel, argument, got, "expected a device such as cuda:0");
        return -1;
    }
    bool any = device.device_type == kDLCUDAHost || device.device_type == kDLROCMHost || device.device_type == kDLCUDAManaged;
    *out = any ? PY_DEVICE_ANY : PY_DEVICE_HOST;
    return 1;
}

int py_parse_device(const char *text)
{
    if (strncmp(text, "cuda", 4) != 0) {
        return PY_DEVICE_HOST;
    }
    if (text[4] != ':') {
        return PY_DEVICE_UNSAID;
    }
    size_t digits = strspn(text + 5, "0123456789");
    return digits > 0 && digits < 10 && text[5 + digits] == '\0' ? (int)strtol(text + 5, NULL, 10) : PY_DEVICE_WRONG;
}

int py_find_device(uint64_t address, PyObject *kernel, PyObject *argument, int *device)
{
    if (address == 0) { /* an empty tensor */
        *device = PY_DEVICE_ANY;
        return 1;
    }
    nj_error error;
    if (py_need_driver() < 0) {
        return -1;
    }
    if (!nj_address_find(address, device, &error)) {
        py_raise_driver(&error, NULL, kernel);
        return -1;
    }
    if (*device < 0) {
        PyObject *got = PyUnicode_FromFormat("address %p", (void *)(uintptr_t)address);
        py_refuse(kernel, argument, got, "expected memory that the CUDA driver knows");
        return -1;
    }
    return 1;
}

int py_reach_host(int ordinal, PyObject *object, PyObject *kernel, PyObject *argument, nj_value *pointer)
{
    ordinal = ordinal == PY_DEVICE_ANY ? py_find_current_device() : ordinal;
    nj_device *device = ordinal < 0 ? NULL : py_need_device(ordinal);
    uint64_t address;
    bool reached = false;
    if (device != NULL) {
        Py_BEGIN_ALLOW_THREADS
        reached = nj_address_reach(device, (uint64_t)pointer->bits, &address);
        Py_END_ALLOW_THREADS
    }
    if (reached) {
        pointer->bits = (int64_t)address;
        return 0;
    }
    PyErr_Clear(); /* without a driver no memory is pinned */
    PyObject *got = PyUnicode_FromFormat("%s in host memory that is not pinned", Py_TYPE(object)->tp_name);
    py_refuse(kernel, argument, got, "expected a CUDA tensor");
    return -1;
}
