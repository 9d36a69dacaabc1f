#include "scratch.h"

#include "errors.h"
#include "tensor.h"

static PyObject *allocator; /* owned; NULL if there is none */
static nj_mutex allocator_lock;

PyObject *nj_set_allocator(PyObject *Py_UNUSED(module), PyObject *callable)
{
    if (callable != Py_None && !PyCallable_Check(callable)) {
        return PyErr_Format(PyExc_TypeError, "expected an allocator that can be called, or None, got %s",
                            Py_TYPE(callable)->tp_name);
    }
    NJ_LOCK(&allocator_lock);
    PyObject *old = allocator;
    allocator = callable == Py_None ? NULL : Py_NewRef(callable);
    NJ_UNLOCK(&allocator_lock);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *current_allocator(void)
{
    NJ_LOCK(&allocator_lock);
    PyObject *found = Py_XNewRef(allocator);
    NJ_UNLOCK(&allocator_lock);
    return found;
}

static int out_of_memory(const nj_plan *plan, const char *message)
{
    PyObject *what = PyUnicode_FromFormat("cannot allocate scratch memory (%s)", message);
    if (what != NULL) {
        nj_driver_error("managed_tensor_allocator", 2, "CUDA_ERROR_OUT_OF_MEMORY", what, plan->label);
        Py_DECREF(what);
    }
    return -1;
}

/* Bytes of scratch for the whole grid; false if that is no size at all. */
static bool size_of(const nj_scratch *scratch, const nj_launch *launch, int64_t *bytes)
{
    int64_t size = (int64_t)scratch->bytes;
    for (int i = 0; i < 3; i++) {
        if (__builtin_mul_overflow(size, (int64_t)launch->grid[i], &size)) {
            return false;
        }
    }
    *bytes = size;
    return size <= INT64_MAX - (int64_t)scratch->align;
}

/* Reads what the caller's allocator gave: a tensor, or an address. */
static int read_allocation(PyObject *object, const nj_plan *plan, const nj_signature *signature, nj_tensor *tensor)
{
    if (PyLong_Check(object) && !PyBool_Check(object)) {
        tensor->value.bits = (int64_t)PyLong_AsUnsignedLongLong(object);
        tensor->device = plan->ordinal;
        if (PyErr_Occurred()) {
            nj_refuse_pending(signature->kernel, NULL, "expected the scratch allocator to return an address");
            return -1;
        }
        return 0;
    }
    int status = PyBool_Check(object) ? 0 : nj_read_tensor(object, NULL, signature->kernel, NULL, tensor);
    if (status == 0) {
        nj_refuse(signature->kernel, NULL, PyUnicode_FromString(Py_TYPE(object)->tp_name),
                  "expected the scratch allocator to return a tensor or an address");
    }
    return status > 0 ? 0 : -1;
}

/* Asks the caller's allocator: `allocator(size, alignment, stream)`, as Triton does. */
static int call_allocator(PyObject *callable, const nj_plan *plan, const nj_scratch *scratch, int64_t size,
                          const nj_signature *signature, nj_launch *launch, PyObject **held, uint64_t *address)
{
    *held = PyObject_CallFunction(callable, "LLK", (long long)size, (long long)scratch->align,
                                  (unsigned long long)(uintptr_t)launch->stream);
    if (*held == NULL) {
        return -1;
    }
    nj_tensor tensor;
    if (read_allocation(*held, plan, signature, &tensor) < 0) {
        return -1;
    }
    *address = (uint64_t)tensor.value.bits;
    if (*address == 0 || *address % scratch->align != 0 ||
        (tensor.device != plan->ordinal && tensor.device != NJ_DEVICE_ANY)) {
        nj_refuse(signature->kernel, NULL, PyUnicode_FromFormat("%p of device %d", (void *)(uintptr_t)*address, tensor.device),
                  "expected the scratch allocator to return memory of cuda:%d aligned to %lld bytes", plan->ordinal,
                  (long long)scratch->align);
        return -1;
    }
    return 0;
}

typedef struct {
    char text[256];
} kept_message;

static void keep_message(void *context, const char *kind, const char *message)
{
    kept_message *kept = context;
    PyOS_snprintf(kept->text, sizeof kept->text, "%s: %s", kind, message);
}

/* Asks the framework, for room to align in too. */
static int ask_framework(const nj_plan *plan, const nj_scratch *scratch, int64_t size, const nj_call *call,
                         DLManagedTensorVersioned **held, uint64_t *address)
{
    int64_t bytes = size + (int64_t)scratch->align;
    kept_message message = {"no reason given"};
    DLTensor prototype = {
        .device = {kDLCUDA, plan->ordinal}, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &bytes};
    if (call->api->managed_tensor_allocator(&prototype, held, &message, keep_message) != 0) {
        PyErr_Clear(); /* a framework that raised beside calling `keep_message` */
        *held = NULL;
        return out_of_memory(plan, message.text);
    }
    const DLTensor *tensor = &(*held)->dl_tensor;
    uint64_t start = (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
    *address = (start + scratch->align - 1) & ~(scratch->align - 1);
    return 0;
}

/* The framework frees scratch in the order of its own current stream: only there is it safe to give back early. */
static int check_stream(const nj_plan *plan, const nj_signature *signature, const nj_call *call,
                        const nj_launch *launch)
{
    if (call->api == NULL) {
        nj_refuse(signature->kernel, NULL, NULL,
                  "the kernel needs scratch memory: expected tensors of a framework with the DLPack C exchange API, or "
                  "an allocator (nojit.runtime.set_allocator)");
        return -1;
    }
    void *current;
    if (call->api->current_work_stream(kDLCUDA, plan->ordinal, &current) != 0) {
        return -1;
    }
    if (current != (void *)launch->stream) {
        nj_refuse(signature->kernel, signature->names[signature->count], PyUnicode_FromString("another stream"),
                  "the kernel needs scratch memory, which is of the framework's current stream: expected that one, or "
                  "an allocator (nojit.runtime.set_allocator)");
        return -1;
    }
    return 0;
}

int nj_scratch_borrow(const nj_plan *plan, const nj_signature *signature, const nj_call *call, nj_launch *launch,
                      nj_scratch_held *held)
{
    const nj_scratch *scratch[2] = {&plan->global_scratch, &plan->profile_scratch};
    PyObject *callable = current_allocator();
    int status = callable == NULL ? check_stream(plan, signature, call, launch) : 0;
    for (int i = 0; i < 2 && status == 0; i++) {
        int64_t size;
        if (scratch[i]->bytes == 0) {
            continue;
        }
        if (!size_of(scratch[i], launch, &size)) {
            status = out_of_memory(plan, "not a size that memory can have");
        } else if (callable != NULL) {
            status = call_allocator(callable, plan, scratch[i], size, signature, launch, &held->objects[i],
                                    &launch->scratch_address[i]);
        } else {
            status = ask_framework(plan, scratch[i], size, call, &held->managed[i], &launch->scratch_address[i]);
        }
    }
    Py_XDECREF(callable);
    return status;
}

/* Gives the memory back while the kernel may still run: who handed it out hands it out again only to work on the same
 * stream, which comes later. */
void nj_scratch_return(nj_scratch_held *held)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    for (int i = 0; i < 2; i++) {
        if (held->managed[i] != NULL && held->managed[i]->deleter != NULL) {
            held->managed[i]->deleter(held->managed[i]);
        }
        Py_XDECREF(held->objects[i]);
    }
    PyErr_Restore(type, value, traceback);
}
