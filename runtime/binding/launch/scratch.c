#include "launch/scratch.h"

#include "call/signature.h"
#include "module.h"
#include "python/exceptions.h"
#include "python/threads.h"
#include "tensor/overlap.h"
#include "tensor/read_tensor.h"

#include "base/dlpack.h"
#include "driver/driver.h"

static PyObject *allocator; /* owned; NULL if none is set */
static py_mutex allocator_lock;

/* `set_allocator(callable or None)`. */
static PyObject *set_allocator(PyObject *Py_UNUSED(module), PyObject *callable)
{
    if (callable != Py_None && !PyCallable_Check(callable)) {
        return PyErr_Format(PyExc_TypeError, "expected an allocator that can be called, or None, got %s",
                            Py_TYPE(callable)->tp_name);
    }
    PY_LOCK(&allocator_lock);
    PyObject *old = allocator;
    allocator = callable == Py_None ? NULL : Py_NewRef(callable);
    PY_UNLOCK(&allocator_lock);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *current_allocator(void)
{
    PY_LOCK(&allocator_lock);
    PyObject *found = Py_XNewRef(allocator);
    PY_UNLOCK(&allocator_lock);
    return found;
}

static int out_of_memory(const py_plan *plan, const char *message)
{
    PyObject *what = PyUnicode_FromFormat("cannot allocate scratch memory (%s)", message);
    if (what != NULL) {
        py_driver_error("managed_tensor_allocator", 2, "CUDA_ERROR_OUT_OF_MEMORY", what, plan->label);
        Py_DECREF(what);
    }
    return -1;
}

/* Memory that an allocator returned. */
typedef struct {
    uint64_t address;
    uint64_t bytes; /* UINT64_MAX if unknown */
    int device;     /* an ordinal, or a constant of tensor_device.h */
} py_allocation;

/* Requires memory that the kernel can use. Returns 0, or -1 with ArgumentError raised, which names the allocator `giver`. */
static int check_allocation(const py_allocation *got, const char *giver, const py_plan *plan, const py_signature *signature,
                            int64_t size, uint64_t align)
{
    bool there = got->device == plan->it.ordinal || got->device == PY_DEVICE_ANY;
    if (!there || got->address == 0 || got->address % align != 0) {
        PyObject *where = got->device == PY_DEVICE_HOST ? PyUnicode_FromString("the host") : PyUnicode_FromFormat("device %d", got->device);
        py_refuse(signature->kernel, NULL, where == NULL ? NULL : PyUnicode_FromFormat("%p of %U", (void *)(uintptr_t)got->address, where),
                  "expected the %s to return memory of cuda:%d aligned to %lld bytes", giver, plan->it.ordinal, (long long)align);
        Py_XDECREF(where);
        return -1;
    }
    if (got->bytes < (uint64_t)size) {
        py_refuse(signature->kernel, NULL, PyUnicode_FromFormat("%llu bytes", (unsigned long long)got->bytes),
                  "expected the %s to return at least %lld bytes", giver, (long long)size);
        return -1;
    }
    return 0;
}

/* Returns the bytes of a tensor from its first element on; 0 if it has no elements or an impossible size. */
static uint64_t bytes_of(const DLTensor *tensor)
{
    py_extent extent;
    uintptr_t start = (uintptr_t)tensor->data + tensor->byte_offset;
    return py_extent_of(tensor, &extent) > 0 && extent.end > start ? extent.end - start : 0;
}

/* Reads what the caller's allocator returned: a tensor or an address. */
static int read_allocation(PyObject *object, const py_plan *plan, const py_signature *signature, py_allocation *got)
{
    py_tensor tensor = {.device = plan->it.ordinal};
    DLTensor view;
    got->bytes = UINT64_MAX;
    if (PyLong_Check(object) && !PyBool_Check(object)) {
        tensor.value.bits = (int64_t)PyLong_AsUnsignedLongLong(object);
        if (PyErr_Occurred()) {
            py_refuse_pending(signature->kernel, NULL, "expected the scratch allocator to return an address of 64 bits");
            return -1;
        }
    } else {
        int status = PyBool_Check(object) ? 0 : py_read_tensor(object, NULL, signature->kernel, NULL, &tensor);
        if (status <= 0) {
            py_refuse(signature->kernel, NULL, PyUnicode_FromString(Py_TYPE(object)->tp_name),
                      "expected the scratch allocator to return a tensor or an address");
            return -1;
        }
        if (tensor.kind == PY_KIND_EXCHANGE && tensor.api->dltensor_from_py_object_no_sync != NULL) {
            py_clear_view(&view);
            got->bytes = tensor.api->dltensor_from_py_object_no_sync(object, &view) == 0 ? bytes_of(&view) : 0;
            PyErr_Clear();
        }
    }
    got->address = (uint64_t)tensor.value.bits;
    got->device = tensor.device;
    return 0;
}

/* Calls the caller's `allocator(size, alignment, stream)`, as Triton does. */
static int call_allocator(PyObject *callable, const py_plan *plan, const nj_scratch *scratch, int64_t size,
                          const py_signature *signature, nj_launch_state *launch, PyObject **held, uint64_t *address)
{
    *held = PyObject_CallFunction(callable, "LLK", (long long)size, (long long)scratch->align,
                                  (unsigned long long)(uintptr_t)launch->stream);
    if (*held == NULL) {
        return -1;
    }
    py_allocation got;
    if (read_allocation(*held, plan, signature, &got) < 0 ||
        check_allocation(&got, "scratch allocator", plan, signature, size, scratch->align) < 0) {
        return -1;
    }
    *address = got.address;
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

/* Reads the tensor that the framework allocated, and aligns its start. */
static py_allocation allocation_of(const DLTensor *tensor, uint64_t align)
{
    uint64_t start = (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset, lost = -start % align, bytes = bytes_of(tensor);
    bool cuda = py_is_gpu(tensor->device.device_type) && tensor->device.device_id >= 0, any = tensor->device.device_type == kDLCUDAManaged;
    return (py_allocation){
        .address = start == 0 ? 0 : start + lost,
        .bytes = bytes < lost ? 0 : bytes - lost,
        .device = cuda ? tensor->device.device_id : any ? PY_DEVICE_ANY : PY_DEVICE_HOST,
    };
}

/* Allocates from the framework, with extra bytes for the alignment. */
static int ask_framework(const py_plan *plan, const py_signature *signature, const nj_scratch *scratch, int64_t size,
                         const py_call *call, DLManagedTensorVersioned **held, uint64_t *address)
{
    int64_t bytes = size + (int64_t)scratch->align;
    kept_message message = {"no reason given"};
    DLTensor prototype = {
        .device = {nj_vendor_found->dlpack_device, plan->it.ordinal}, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &bytes};
    if (call->api->managed_tensor_allocator(&prototype, held, &message, keep_message) != 0) {
        PyErr_Clear(); /* the framework may have raised as well as called `keep_message` */
        *held = NULL;
        return out_of_memory(plan, message.text);
    }
    py_allocation got = {.device = PY_DEVICE_HOST};
    if (*held != NULL) {
        got = allocation_of(&(*held)->dl_tensor, scratch->align);
    }
    *address = got.address;
    return check_allocation(&got, "framework's allocator", plan, signature, size, scratch->align);
}

/* Requires that the launch is on the framework's current stream. The framework reuses freed memory in the order of that stream, so only
 * there is it safe to free scratch memory before the kernel ends. */
static int check_stream(const py_plan *plan, const py_signature *signature, const py_call *call,
                        const nj_launch_state *launch)
{
    if (call->api == NULL) {
        py_refuse(signature->kernel, NULL, NULL,
                  "the kernel needs scratch memory: expected tensors of a framework with the DLPack C exchange API, or "
                  "an allocator (nojit.runtime.set_allocator)");
        return -1;
    }
    void *current = NULL;
    if (call->api->managed_tensor_allocator == NULL || call->api->current_work_stream(nj_vendor_found->dlpack_device, plan->it.ordinal, &current) != 0) {
        py_refuse(signature->kernel, NULL, NULL, "the kernel needs scratch memory: expected the framework to have an allocator and a stream");
        return -1;
    }
    if (current != (void *)launch->stream) {
        py_refuse(signature->kernel, signature->names[signature->count], PyUnicode_FromString("another stream"),
                  "the kernel needs scratch memory, which is of the framework's current stream: expected that one, or "
                  "an allocator (nojit.runtime.set_allocator)");
        return -1;
    }
    return 0;
}

int py_scratch_borrow(const py_plan *plan, const py_signature *signature, const py_call *call, nj_launch_state *launch,
                      py_scratch_held *held)
{
    const nj_scratch *scratch[2] = {&plan->it.global_scratch, &plan->it.profile_scratch};
    PyObject *callable = current_allocator();
    int status = callable == NULL ? check_stream(plan, signature, call, launch) : 0;
    for (int i = 0; i < 2 && status == 0; i++) {
        int64_t size;
        if (scratch[i]->bytes == 0) {
            continue;
        }
        if (!nj_launch_scratch(scratch[i], launch, &size)) {
            status = out_of_memory(plan, "not a size that memory can have");
        } else if (callable != NULL) {
            status = call_allocator(callable, plan, scratch[i], size, signature, launch, &held->objects[i],
                                    &launch->scratch_address[i]);
        } else {
            status = ask_framework(plan, signature, scratch[i], size, call, &held->managed[i], &launch->scratch_address[i]);
        }
    }
    Py_XDECREF(callable);
    return status;
}

/* Frees the memory while the kernel may still run. This is safe because its allocator reuses it only for later work on the same
 * stream. */
void py_scratch_return(py_scratch_held *held)
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

static PyMethodDef functions[] = {
    {"set_allocator", set_allocator, METH_O,
     PyDoc_STR("Take scratch memory from `allocator(size, alignment, stream)`; from the tensors' framework if None.")},
    {NULL},
};

int py_add_scratch(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
