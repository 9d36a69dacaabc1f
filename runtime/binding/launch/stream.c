#include "launch/stream.h"

#include "call/signature.h"
#include "module.h"
#include "python/at_import.h"
#include "python/attributes.h"
#include "python/exceptions.h"
#include "python/threads.h"
#include "tensor/torch.h"

#include "driver/driver.h"

/* Set once by `py_add_stream_names` under the import lock. */
static struct {
    PyObject *bindings, *raw_stream, *cuda_stream, *cupy_pointer;
} names;

int py_add_stream_names(PyObject *Py_UNUSED(module))
{
    static const py_interned wanted[] = {
        {&names.bindings, "_C"},
        {&names.raw_stream, "_cuda_getCurrentRawStream"},
        {&names.cuda_stream, "cuda_stream"},
        {&names.cupy_pointer, "ptr"},
        {NULL},
    };
    return py_intern(wanted);
}

static int as_stream(PyObject *number, void **stream)
{
    unsigned long long handle = PyLong_AsUnsignedLongLong(number);
    *stream = (void *)(uintptr_t)handle;
    return handle == (unsigned long long)-1 && PyErr_Occurred() ? -1 : 0;
}

/* Asks torch for its current stream, as Triton does. Returns 1, 0 if torch is not loaded or has no CUDA, or -1 with an exception
 * raised. */
static int current_of_torch(const py_signature *signature, const py_call *call, void **stream)
{
    PyObject *bindings = py_of_torch(names.bindings);
    PyObject *ask = bindings == NULL ? NULL : py_optional_attribute(bindings, names.raw_stream);
    Py_XDECREF(bindings);
    if (ask == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *ordinal = PyLong_FromLong(call->device);
    PyObject *handle = ordinal == NULL ? NULL : PyObject_CallOneArg(ask, ordinal);
    int status = handle == NULL ? -1 : as_stream(handle, stream);
    Py_XDECREF(handle);
    Py_XDECREF(ordinal);
    Py_DECREF(ask);
    if (status == 0) {
        return 1;
    }
    if ((call->origins & PY_OF_TORCH) == 0 && PyErr_ExceptionMatches(PyExc_RuntimeError)) {
        /* torch has no streams if, for example, it finds no usable driver */
        PyErr_Clear();
        return 0;
    }
    py_refuse_pending(signature->kernel, signature->names[signature->count],
                      "expected torch to say which stream is current: pass stream=");
    return -1;
}

/* True if the call passes memory, so that the launch may have to wait for its data. */
static bool passes_memory(const py_signature *signature, const py_call *call)
{
    bool passes = call->descriptor_count > 0;
    for (Py_ssize_t i = 0; i < signature->param_count && !passes; i++) {
        passes = !signature->constexprs[i] && call->values[i].tag == NJ_TAG_POINTER && call->values[i].bits != 0;
    }
    for (uint16_t i = 0; i < call->leaf_count && !passes; i++) {
        passes = call->leaves[i].tag == NJ_TAG_POINTER && call->leaves[i].bits != 0;
    }
    return passes;
}

/* Warns once per process that a launch may run before its data is ready. Returns 0, or -1 if warnings are errors. */
static int warn_of_default(const py_signature *signature)
{
    static atomic_bool warned;
    if (atomic_load_explicit(&warned, memory_order_relaxed)) {
        return 0;
    }
    PyObject *module = PyImport_ImportModule("nojit.runtime.errors");
    PyObject *category = module == NULL ? NULL : PyObject_GetAttrString(module, "StreamWarning");
    int status = category == NULL ? -1
                                  : PyErr_WarnFormat(category, 1,
                                                     "kernel %U is launched on the default stream: no argument says which stream "
                                                     "is current, nor does torch; pass stream= (0 for the default stream)",
                                                     signature->kernel);
    Py_XDECREF(category);
    Py_XDECREF(module);
    if (status == 0) {
        atomic_store_explicit(&warned, true, memory_order_relaxed);
    }
    return status;
}

/* Finds the stream of a call that has neither `stream=` nor a tensor with an exchange API. Not inline: few calls are like this. */
static __attribute__((noinline)) int find_other(const py_signature *signature, const py_call *call, void **stream)
{
    if ((call->origins & PY_OF_TORCH) != 0 || call->stream == NULL) {
        int found = current_of_torch(signature, call, stream);
        if (found != 0) {
            return found < 0 ? -1 : 0;
        }
    }
    *stream = call->stream;
    bool silent = call->stream == NULL && (call->origins & PY_SAYS_STREAM) == 0;
    return silent && passes_memory(signature, call) ? warn_of_default(signature) : 0;
}

/* Returns the handle of a stream as a new reference: torch's `cuda_stream`, the second item of `__cuda_stream__()`, or CuPy's `ptr`.
 * NULL with an exception raised. */
static PyObject *handle_of(PyObject *stream)
{
    PyObject *handle = py_optional_attribute(stream, names.cuda_stream);
    if (handle != NULL || PyErr_Occurred()) {
        return handle;
    }
    PyObject *pair = PyObject_CallMethod(stream, "__cuda_stream__", NULL);
    if (pair == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return PyObject_GetAttr(stream, names.cupy_pointer);
    }
    handle = pair == NULL ? NULL : PySequence_GetItem(pair, 1);
    Py_XDECREF(pair);
    return handle;
}

static int read_given(const py_signature *signature, PyObject *given, void **stream)
{
    bool number = PyLong_Check(given) && !PyBool_Check(given);
    PyObject *handle = number ? Py_NewRef(given) : handle_of(given);
    int status = handle == NULL ? -1 : as_stream(handle, stream);
    Py_XDECREF(handle);
    if (status < 0) {
        py_refuse_pending(signature->kernel, signature->names[signature->count],
                          "expected a stream: an int, or an object with cuda_stream, __cuda_stream__ or ptr");
    }
    return status;
}

int py_find_stream(const py_signature *signature, const py_call *call, void **stream)
{
    PyObject *given = call->objects[NJ_ARGUMENTS_MAX];
    if (given != NULL && given != Py_None) {
        return read_given(signature, given, stream);
    }
    if (call->api == NULL) {
        return find_other(signature, call, stream);
    }
    *stream = NULL;
    if (call->api->current_work_stream(nj_vendor_found->dlpack_device, call->device, stream) != 0) {
        /* an exception that the framework has raised stays pending */
        py_refuse(signature->kernel, NULL, NULL, "expected the framework to say which stream is current: pass stream=");
        return -1;
    }
    return 0;
}
