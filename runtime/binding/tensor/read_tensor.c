#include "tensor/read_tensor.h"

#include "module.h"
#include "python/at_import.h"
#include "python/attributes.h"
#include "python/exceptions.h"
#include "tensor/tensor_device.h"
#include "tensor/without_dlpack.h"

static PyObject *dtype_name; /* interned by `py_add_dtype_names` under the import lock */

enum { CODES = 32, BYTES_MAX = 8 };

/* Dtypes by DLPack's type code and size in bytes. Set once by `py_add_dtype_names` under the import lock. */
static uint8_t dtypes[CODES][BYTES_MAX + 1];

static void find_dtypes(void)
{
    memset(dtypes, NJ_DTYPE_COUNT, sizeof dtypes);
    for (nj_dtype dtype = NJ_DTYPE_NONE; dtype < NJ_DTYPE_COUNT; dtype++) {
        if (nj_dtypes[dtype].dlpack != NJ_NOT_IN_DLPACK) {
            dtypes[nj_dtypes[dtype].dlpack][nj_dtypes[dtype].bytes] = (uint8_t)dtype;
        }
    }
}

int py_add_dtype_names(PyObject *Py_UNUSED(module))
{
    static const py_interned wanted[] = {{&dtype_name, "dtype"}, {NULL}};
    find_dtypes();
    return py_intern(wanted);
}

static nj_dtype dtype_of(DLDataType type)
{
    bool known = type.lanes == 1 && type.bits <= 8 * BYTES_MAX && type.bits % 8 == 0 && type.code < CODES;
    return known ? dtypes[type.code][type.bits / 8] : NJ_DTYPE_COUNT;
}

/* Returns the view of a tensor that the caller has read; NULL if it has not. */
static const DLTensor *find_seen(const py_seen *seen, PyObject *object)
{
    for (Py_ssize_t i = 0; seen != NULL && i < seen->count; i++) {
        if (seen->objects[i] == object) {
            return &seen->views[i];
        }
    }
    return NULL;
}

/* Refuses a tensor that could not be read. The error names the kind of tensor if that explains it, or else quotes the pending
 * exception. Returns -1. */
static __attribute__((noinline, cold)) int refuse_unread(PyObject *object, PyObject *kernel, PyObject *argument, const char *what)
{
    PyObject *type, *cause, *traceback;
    PyErr_Fetch(&type, &cause, &traceback);
    bool expected = type == NULL || (PyErr_GivenExceptionMatches(type, PyExc_Exception) &&
                                     !PyErr_GivenExceptionMatches(type, PyExc_MemoryError));
    PyObject *module = expected ? PyImport_ImportModule("nojit.runtime.call.refused_tensors") : NULL;
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

/* Reads the device of a tensor that has no memory or no CUDA ordinal. Not inline: such tensors are rare. */
static __attribute__((noinline)) int read_odd(const DLTensor *view, PyObject *object, PyObject *kernel,
                                              PyObject *argument, int *device)
{
    if (py_lacks_memory(view)) {
        return refuse_unread(object, kernel, argument, "");
    }
    return py_read_odd_device(view->device, kernel, argument, device);
}

/* Gets a view of a tensor. Use neither its strides, which may be freed, nor its shape, which may only tell whether there are elements.
 * Returns 0, or another value with an exception raised. */
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

/* Refuses a tensor whose dtype Triton lacks. The error has the framework's name of the dtype. */
static __attribute__((noinline)) void refuse_type(DLDataType type, PyObject *object, PyObject *kernel, PyObject *argument)
{
    static const char what[] = "expected a tensor of a dtype that Triton has";
    PyObject *dtype = py_optional_attribute(object, dtype_name);
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

/* Finds the kind of an object again if it is `was` and the object has a dict, since objects of one type may have different attributes.
 * Returns 0, or -1 with an exception raised. */
static int look_again(PyObject *object, py_kind was, py_kind *kind)
{
    if (*kind != was || Py_TYPE(object)->tp_dictoffset == 0) {
        return 0;
    }
    int found = py_is_descriptor(object);
    *kind = found > 0 ? PY_KIND_DESCRIPTOR : PY_KIND_OTHER;
    return found < 0 ? -1 : 0;
}

/* Reads an object whose type has no exchange API. Not inline: inlined, it would make the common path save more registers. */
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
        status = py_read_without_dlpack(object, tensor);
    }
    if (status == 0) {
        status = look_again(object, PY_KIND_OTHER, &tensor->kind);
    }
    if (status < 0) {
        return refuse_unread(object, kernel, argument, "expected a tensor that says where its data lies");
    }
    bool unsaid = status == 1 && tensor->device == PY_DEVICE_UNSAID;
    return unsaid ? py_find_device((uint64_t)tensor->value.bits, kernel, argument, &tensor->device) : status;
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
