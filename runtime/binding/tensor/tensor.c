#include "tensor/tensor.h"

#include "gpu/py_driver.h"
#include "module.h"
#include "python/at_import.h"
#include "python/attributes.h"
#include "python/exceptions.h"
#include "python/threads.h"
#include "tensor/torch.h"

#include "driver/driver.h"
#include "driver/query.h"

/* Set once by `py_add_tensor_names` under the import lock. */
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

enum { CODES = 32, BYTES_MAX = 8 };

/* Dtypes by DLPack's code and bytes: as `names`. */
static uint8_t dtypes[CODES][BYTES_MAX + 1];

static void find_dtypes(void)
{
    memset(dtypes, NJ_DTYPE_COUNT, sizeof dtypes);
    for (int dtype = 0; dtype < NJ_DTYPE_COUNT; dtype++) {
        if (nj_dtypes[dtype].dlpack != NJ_NOT_IN_DLPACK) {
            dtypes[nj_dtypes[dtype].dlpack][nj_dtypes[dtype].bytes] = (uint8_t)dtype;
        }
    }
}

int py_add_tensor_names(PyObject *Py_UNUSED(module))
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
    find_dtypes();
    return py_intern(wanted);
}

static nj_dtype dtype_of(DLDataType type)
{
    bool known = type.lanes == 1 && type.bits <= 8 * BYTES_MAX && type.bits % 8 == 0 && type.code < CODES;
    return known ? dtypes[type.code][type.bits / 8] : NJ_DTYPE_COUNT;
}

/* Whether memory is of a GPU whose driver this process uses. */
static bool is_drivers(int32_t device_type)
{
    if (!py_is_gpu(device_type)) {
        return false;
    }
    (void)nj_driver_find(); /* sets nj_vendor_found */
    return device_type == nj_vendor_found->dlpack_device;
}

static int read_odd_device(DLDevice device, PyObject *kernel, PyObject *argument, int *out)
{
    bool known = is_drivers(device.device_type);
    if (known && device.device_id >= 0) {
        *out = device.device_id; /* of an empty tensor, or of AMD's */
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

/* The view of a tensor that was read a moment ago; NULL if it was not. */
static const DLTensor *find_seen(const py_seen *seen, PyObject *object)
{
    for (Py_ssize_t i = 0; seen != NULL && i < seen->count; i++) {
        if (seen->objects[i] == object) {
            return &seen->views[i];
        }
    }
    return NULL;
}

/* Refuses a tensor that could not be read: says what kind of tensor it is if that tells why, else quotes what went wrong, if
 * anything did. Returns -1. */
static __attribute__((noinline, cold)) int refuse_unread(PyObject *object, PyObject *kernel, PyObject *argument, const char *what)
{
    PyObject *type, *cause, *traceback;
    PyErr_Fetch(&type, &cause, &traceback);
    bool expected = type == NULL || (PyErr_GivenExceptionMatches(type, PyExc_Exception) &&
                                     !PyErr_GivenExceptionMatches(type, PyExc_MemoryError));
    PyObject *module = expected ? PyImport_ImportModule("nojit.runtime.launch.odd_tensors") : NULL;
    PyObject *kind = module == NULL ? NULL : PyObject_CallMethod(module, "kind_of", "O", object);
    Py_XDECREF(module);
    if (kind != NULL && PyUnicode_GET_LENGTH(kind) == 0) {
        Py_SETREF(kind, type == NULL ? PyUnicode_FromString(Py_TYPE(object)->tp_name) : NULL);
    }
    if (kind != NULL) {
        py_refuse(kernel, argument, kind, "expected a tensor with memory");
    } else if (!PyErr_Occurred()) {
        PyErr_Restore(type, cause, traceback);
        if (expected) {
            py_refuse_pending(kernel, argument, what);
        }
        return -1;
    }
    Py_XDECREF(type);
    Py_XDECREF(cause);
    Py_XDECREF(traceback);
    return -1;
}

/* Reads where a tensor lies that has no memory, or on no ordinal. Not inline: nearly none are like this. */
static __attribute__((noinline)) int read_odd(const DLTensor *view, PyObject *object, PyObject *kernel,
                                              PyObject *argument, int *device)
{
    if (py_lacks_memory(view)) {
        return refuse_unread(object, kernel, argument, "");
    }
    return read_odd_device(view->device, kernel, argument, device);
}

/* A view of the tensor whose strides may be gone by the time this returns; its shape says no more than whether there are
 * elements. */
static int exchange(PyObject *object, const DLPackExchangeAPI *api, DLTensor *raw)
{
    py_clear_view(raw);
    if (api->dltensor_from_py_object_no_sync != NULL) {
        return api->dltensor_from_py_object_no_sync(object, raw);
    }
    DLManagedTensorVersioned *managed = NULL;
    if (api->managed_tensor_from_py_object_no_sync(object, &managed) != 0) {
        return -1;
    }
    if (managed == NULL) {
        PyErr_SetString(PyExc_ValueError, "the framework's exchange API gave no tensor");
        return -1;
    }
    *raw = managed->dl_tensor;
    static const int64_t nothing[] = {0};
    bool empty = raw->data == NULL && !py_lacks_memory(raw);
    raw->ndim = empty;
    raw->shape = (int64_t *)nothing;
    if (managed->deleter != NULL) {
        managed->deleter(managed);
    }
    return 0;
}

/* Raises for a tensor of a dtype that Triton has not, by the name that its framework has for it. */
static __attribute__((noinline)) void refuse_type(DLDataType type, PyObject *object, PyObject *kernel, PyObject *argument)
{
    static const char what[] = "expected a tensor of a dtype that Triton has";
    PyObject *dtype = py_optional_attribute(object, names.dtype);
    PyObject *text = dtype == NULL ? NULL : PyObject_Str(dtype);
    const char *utf8 = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    if (utf8 != NULL && nj_dtype_parse(utf8) == NJ_DTYPE_COUNT) {
        py_refuse_dtype(dtype);
    }
    Py_XDECREF(text);
    Py_XDECREF(dtype);
    if (PyErr_Occurred()) {
        py_refuse_pending(kernel, argument, what);
        return;
    }
    PyObject *got = PyUnicode_FromFormat("DLPack type code %d, %d bits, %d lanes", type.code, type.bits, type.lanes);
    py_refuse(kernel, argument, got, what);
}

static int read_exchanged(PyObject *object, const py_seen *seen, PyObject *kernel, PyObject *argument,
                          py_tensor *tensor)
{
    DLTensor raw;
    const DLTensor *known = find_seen(seen, object);
    if (known != NULL) {
        raw = *known;
    } else if (exchange(object, tensor->api, &raw) != 0) {
        return refuse_unread(object, kernel, argument, "expected a tensor that DLPack can describe");
    }
    nj_dtype dtype = dtype_of(raw.dtype);
    if (dtype == NJ_DTYPE_COUNT) {
        refuse_type(raw.dtype, object, kernel, argument);
        return -1;
    }
    tensor->value = (nj_value){
        .tag = NJ_TAG_POINTER, .dtype = (uint8_t)dtype, .bits = (int64_t)((uintptr_t)raw.data + raw.byte_offset)};
    tensor->device = raw.device.device_id;
    bool plain = raw.device.device_type == kDLCUDA && raw.device.device_id >= 0 && raw.data != NULL;
    return plain ? 1 : read_odd(&raw, object, kernel, argument, &tensor->device);
}

/* Takes an int as an address. */
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

/* Reads ``str(dtype)`` into the value: 1, or 0 if Triton has none such; -1 with an exception. */
static int read_dtype(PyObject *object, py_tensor *tensor)
{
    PyObject *text = PyObject_Str(object);
    const char *utf8 = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    nj_dtype dtype = utf8 == NULL ? NJ_DTYPE_COUNT : nj_dtype_parse(utf8);
    Py_XDECREF(text);
    tensor->value.dtype = (uint8_t)dtype;
    return utf8 == NULL ? -1 : dtype != NJ_DTYPE_COUNT;
}

/* An entry of an interface, new; NULL where it is not there, or None. */
static PyObject *entry_of(PyObject *interface, PyObject *name)
{
    PyObject *value = py_dict_get(interface, name);
    if (value == Py_None) {
        Py_CLEAR(value);
    }
    return value;
}

/* Whether a shape says that there are elements. */
static bool has_elements(PyObject *shape)
{
    bool some = shape != NULL && PyTuple_Check(shape);
    for (Py_ssize_t i = 0; some && i < PyTuple_GET_SIZE(shape); i++) {
        some = PyObject_IsTrue(PyTuple_GET_ITEM(shape, i)) == 1;
    }
    return some;
}

/* Reads the stream that an interface names, since version 3: 1 for the legacy default stream, 2 for the thread's, a handle, or
 * None where the data is ready for any; 0 would leave open which default stream is meant. */
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

/* Reads what an interface says of how its data may be used: 1, or -1 with an exception. */
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

/* `__cuda_array_interface__`: 1 if it says all we need, 0 if there is none or it does not, -1 with an exception. */
static int read_array_interface(PyObject *object, py_tensor *tensor)
{
    PyObject *interface = PyObject_GetAttr(object, names.cuda_array_interface);
    if (interface == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            return -1;
        }
        /* torch refuses some tensors that have a data_ptr all the same, those that need a gradient say */
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

/* Reads "cuda:1", "cuda", "cpu" and the like; "cuda" alone leaves the driver to say which. */
static int parse_device(const char *text)
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
        tensor->device = parse_device(utf8);
        if (tensor->device == PY_DEVICE_WRONG) {
            PyErr_Format(PyExc_ValueError, "expected a device such as cuda:0, got %U", text);
            utf8 = NULL;
        }
    }
    Py_XDECREF(text);
    return utf8 == NULL ? -1 : 1;
}

/* Requires of what lies at address 0 that it has no elements, if it can count them: 0, or -1 with an exception. */
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

/* ``data_ptr()``, ``dtype`` and ``device``: torch before 2.10, Triton's TensorWrapper. As `read_array_interface`. */
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

/* Looks into what wraps another tensor, as Triton's TensorWrapper does: that one's framework says which stream is current. 0, or
 * -1 with an exception. */
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

/* Reads a tensor of torch before 2.10, in that one of its two ways that says the device. A nested one has a `data_ptr()`, too. */
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

/* Reads a tensor of another make: as `read_array_interface`. */
static int read_parts(PyObject *object, py_tensor *tensor)
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

/* Asks the driver where an address lies. */
static int find_device(PyObject *kernel, PyObject *argument, py_tensor *tensor)
{
    if (tensor->value.bits == 0) { /* an empty tensor */
        tensor->device = PY_DEVICE_ANY;
        return 1;
    }
    nj_error error;
    if (py_need_driver() < 0) {
        return -1;
    }
    if (!nj_address_find((uint64_t)tensor->value.bits, &tensor->device, &error)) {
        py_raise_driver(&error, NULL, kernel);
        return -1;
    }
    if (tensor->device < 0) {
        PyObject *got = PyUnicode_FromFormat("address %p", (void *)(uintptr_t)tensor->value.bits);
        py_refuse(kernel, argument, got, "expected memory that the CUDA driver knows");
        return -1;
    }
    return 1;
}

/* Attributes that lie in an object's dict can differ from one object of a type to the next: 0, or -1 with an exception. */
static int look_again(PyObject *object, py_kind was, py_kind *kind)
{
    if (*kind != was || Py_TYPE(object)->tp_dictoffset == 0) {
        return 0;
    }
    int found = py_is_descriptor(object);
    *kind = found > 0 ? PY_KIND_DESCRIPTOR : PY_KIND_OTHER;
    return found < 0 ? -1 : 0;
}

/* Reads what has no exchange API. Not inline: with it the common way would save more registers. */
static __attribute__((noinline)) int read_other(PyObject *object, PyObject *kernel, PyObject *argument,
                                                py_tensor *tensor)
{
    tensor->value = (nj_value){0};
    tensor->stream = NULL;
    tensor->origins = 0;
    int status = look_again(object, PY_KIND_DESCRIPTOR, &tensor->kind);
    if (status == 0 && tensor->kind == PY_KIND_DESCRIPTOR) {
        return 0;
    }
    if (status == 0) {
        status = read_parts(object, tensor);
    }
    if (status == 0) {
        status = look_again(object, PY_KIND_OTHER, &tensor->kind);
    }
    if (status < 0) {
        return refuse_unread(object, kernel, argument, "expected a tensor that says where its data lies");
    }
    return status == 1 && tensor->device == PY_DEVICE_UNSAID ? find_device(kernel, argument, tensor) : status;
}

int py_read_tensor(PyObject *object, const py_seen *seen, PyObject *kernel, PyObject *argument, py_tensor *tensor)
{
    if (py_kind_of(object, &tensor->kind, &tensor->api) < 0) {
        py_refuse_pending(kernel, argument, "expected a type with a DLPack exchange API");
        return -1;
    }
    return tensor->kind == PY_KIND_EXCHANGE ? read_exchanged(object, seen, kernel, argument, tensor)
                                            : read_other(object, kernel, argument, tensor);
}
