#include "tensor/without_dlpack.h"

#include "module.h"
#include "python/at_import.h"
#include "python/attributes.h"
#include "python/exceptions.h"
#include "tensor/torch.h"

/* Set once by `py_add_array_names` under the import lock. */
static struct {
    PyObject *cuda_array_interface;
    PyObject *data_ptr;
    PyObject *data;
    PyObject *dtype;
    PyObject *device;
    PyObject *typestr;
    PyObject *numel;
    PyObject *shape;
    PyObject *mask;
    PyObject *stream;
    PyObject *base;
    PyObject *is_nested;
} names;

int py_add_array_names(PyObject *Py_UNUSED(module))
{
    static const py_interned wanted[] = {
        {&names.cuda_array_interface, "__cuda_array_interface__"},
        {&names.data_ptr, "data_ptr"},
        {&names.data, "data"},
        {&names.dtype, "dtype"},
        {&names.device, "device"},
        {&names.typestr, "typestr"},
        {&names.numel, "numel"},
        {&names.shape, "shape"},
        {&names.mask, "mask"},
        {&names.stream, "stream"},
        {&names.base, "base"},
        {&names.is_nested, "is_nested"},
        {NULL},
    };
    return py_intern(wanted);
}

/* Reads an int as the address. Returns 0, or -1 with an exception raised. */
static int read_address(PyObject *number, py_tensor *tensor)
{
    unsigned long long address = PyLong_AsUnsignedLongLong(number);
    if (address == (unsigned long long)-1 && PyErr_Occurred()) {
        return -1;
    }
    tensor->value.tag = NJ_TAG_POINTER;
    tensor->value.bits = (int64_t)address;
    return 0;
}

/* Reads ``str(dtype)`` into the value. Returns 1, 0 if Triton has no such dtype, or -1 with an exception raised. */
static int read_dtype(PyObject *object, py_tensor *tensor)
{
    PyObject *text = PyObject_Str(object);
    const char *utf8 = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    nj_dtype dtype = utf8 == NULL ? NJ_DTYPE_COUNT : nj_dtype_parse(utf8);
    Py_XDECREF(text);
    tensor->value.dtype = (uint8_t)dtype;
    return utf8 == NULL ? -1 : dtype != NJ_DTYPE_COUNT;
}

/* Returns an entry of an array interface as a new reference; NULL if it is missing or None. */
static PyObject *entry_of(PyObject *interface, PyObject *name)
{
    PyObject *value = py_dict_get(interface, name);
    if (value == Py_None) {
        Py_CLEAR(value);
    }
    return value;
}

/* True if a shape is a tuple without a 0, so that the tensor has elements. */
static bool has_elements(PyObject *shape)
{
    bool some = shape != NULL && PyTuple_Check(shape);
    for (Py_ssize_t i = 0; some && i < PyTuple_GET_SIZE(shape); i++) {
        some = PyObject_IsTrue(PyTuple_GET_ITEM(shape, i)) == 1;
    }
    return some;
}

/* Reads the stream entry, which interfaces have since version 3: 1 for the legacy default stream, 2 for the per-thread one, a handle, or
 * None if the data is ready. 0 is an error, since it would not tell which default stream. */
static void read_interface_stream(PyObject *interface, py_tensor *tensor)
{
    PyObject *stream = py_dict_get(interface, names.stream);
    unsigned long long handle = stream == NULL || stream == Py_None ? 0 : PyLong_AsUnsignedLongLong(stream);
    if (stream != NULL && stream != Py_None && handle == 0) {
        PyErr_SetString(PyExc_ValueError, "expected a stream of None, 1 (legacy default), 2 (per-thread default) or a handle, got 0");
    }
    tensor->stream = (void *)(uintptr_t)handle;
    tensor->origins |= stream == NULL ? 0 : PY_SAYS_STREAM;
    Py_XDECREF(stream);
}

/* Checks an interface's mask and memory, and reads its stream. Returns 1, or -1 with an exception raised. */
static int read_terms(PyObject *interface, py_tensor *tensor)
{
    PyObject *mask = entry_of(interface, names.mask);
    PyObject *shape = tensor->value.bits == 0 ? entry_of(interface, names.shape) : NULL;
    if (mask != NULL) {
        PyErr_SetString(PyExc_ValueError, "expected an array without a mask");
    } else if (has_elements(shape)) {
        PyErr_SetString(PyExc_ValueError, "expected an array with memory, got address 0");
    } else {
        read_interface_stream(interface, tensor);
    }
    Py_XDECREF(mask);
    Py_XDECREF(shape);
    return PyErr_Occurred() ? -1 : 1;
}

/* Reads `__cuda_array_interface__`. Returns 1, 0 if it is missing or incomplete, or -1 with an exception raised. */
static int read_array_interface(PyObject *object, py_tensor *tensor)
{
    PyObject *interface = PyObject_GetAttr(object, names.cuda_array_interface);
    if (interface == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            return -1;
        }
        /* torch raises for some tensors that have a data_ptr, such as those that require a gradient */
        PyErr_Clear();
        return 0;
    }
    int status = 0;
    if (PyDict_Check(interface)) {
        PyObject *data = py_dict_get(interface, names.data);
        PyObject *typestr = data == NULL ? NULL : py_dict_get(interface, names.typestr);
        if (typestr != NULL && PyTuple_Check(data) && PyTuple_GET_SIZE(data) > 0) {
            status = read_dtype(typestr, tensor);
            if (status > 0) {
                status = read_address(PyTuple_GET_ITEM(data, 0), tensor) < 0 ? -1 : read_terms(interface, tensor);
            }
        }
        Py_XDECREF(data);
        Py_XDECREF(typestr);
    }
    Py_DECREF(interface);
    tensor->device = PY_DEVICE_UNSAID;
    return PyErr_Occurred() ? -1 : status;
}

static int read_device(PyObject *object, py_tensor *tensor)
{
    PyObject *device = py_optional_attribute(object, names.device);
    if (device == NULL) {
        tensor->device = PY_DEVICE_UNSAID;
        return PyErr_Occurred() ? -1 : 1;
    }
    PyObject *text = PyObject_Str(device);
    Py_DECREF(device);
    const char *utf8 = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    if (utf8 != NULL) {
        tensor->device = py_parse_device(utf8);
        if (tensor->device == PY_DEVICE_WRONG) {
            PyErr_Format(PyExc_ValueError, "expected a device such as cuda:0, got %U", text);
            utf8 = NULL;
        }
    }
    Py_XDECREF(text);
    return utf8 == NULL ? -1 : 1;
}

/* Requires that a tensor at address 0 has no elements, if it has a numel(). Returns 0, or -1 with an exception raised. */
static int check_empty(PyObject *object)
{
    PyObject *numel = py_optional_attribute(object, names.numel);
    PyObject *count = numel == NULL ? NULL : PyObject_CallNoArgs(numel);
    if (count != NULL && PyObject_IsTrue(count) == 1) {
        PyErr_SetString(PyExc_ValueError, "expected a tensor with memory, got address 0");
    }
    Py_XDECREF(numel);
    Py_XDECREF(count);
    return PyErr_Occurred() ? -1 : 0;
}

/* Reads ``data_ptr()``, ``dtype`` and ``device``, which torch before 2.10 and Triton's TensorWrapper have. Returns as
 * `read_array_interface` does. */
static int read_data_ptr(PyObject *object, py_tensor *tensor)
{
    PyObject *data_ptr = py_optional_attribute(object, names.data_ptr);
    if (data_ptr == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *address = PyObject_CallNoArgs(data_ptr);
    Py_DECREF(data_ptr);
    int status = address == NULL ? -1 : read_address(address, tensor);
    Py_XDECREF(address);
    if (status == 0 && tensor->value.bits == 0) {
        status = check_empty(object);
    }
    PyObject *dtype = status < 0 ? NULL : PyObject_GetAttr(object, names.dtype);
    if (dtype == NULL) {
        return -1;
    }
    status = read_dtype(dtype, tensor);
    if (status == 0) {
        py_refuse_dtype(dtype);
    }
    Py_DECREF(dtype);
    return status == 1 ? read_device(object, tensor) : -1;
}

/* Reads the framework of a wrapped tensor, such as that of Triton's TensorWrapper, to ask it for its current stream. Returns 0, or -1
 * with an exception raised. */
static int read_base(PyObject *object, py_tensor *tensor)
{
    PyObject *base = py_optional_attribute(object, names.base);
    if (base == NULL || base == Py_None) {
        Py_XDECREF(base);
        return PyErr_Occurred() ? -1 : 0;
    }
    py_kind kind;
    int status = py_kind_of(base, &kind, &tensor->api);
    if (status == 0 && tensor->api == NULL) {
        status = py_is_torch(base);
        tensor->origins |= status > 0 ? PY_OF_TORCH : 0;
    }
    Py_DECREF(base);
    return status < 0 ? -1 : 0;
}

/* Reads a tensor of torch before 2.10 by data_ptr(), since its array interface names no device. Refuses nested tensors, which have a
 * data_ptr(), too. */
static int read_old_torch(PyObject *object, py_tensor *tensor)
{
    PyObject *nested = py_optional_attribute(object, names.is_nested);
    bool is_nested = nested == Py_True;
    Py_XDECREF(nested);
    if (is_nested) {
        PyErr_SetString(PyExc_ValueError, "expected a tensor that is not nested");
    }
    tensor->origins = PY_OF_TORCH;
    return PyErr_Occurred() ? -1 : read_data_ptr(object, tensor);
}

int py_read_without_dlpack(PyObject *object, py_tensor *tensor)
{
    int torch = py_is_torch(object);
    if (torch != 0) {
        return torch < 0 ? -1 : read_old_torch(object, tensor);
    }
    int status = read_array_interface(object, tensor);
    if (status == 0) {
        status = read_data_ptr(object, tensor);
        status = status > 0 && read_base(object, tensor) < 0 ? -1 : status;
    }
    return status;
}
