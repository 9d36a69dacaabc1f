/* The launch itself: arguments packed, scratch borrowed, kernel enqueued. */
#include "errors.h"
#include "plan.h"
#include "tensor.h"

#define GRID_X_MAX INT64_C(0x7fffffff)
#define GRID_YZ_MAX INT64_C(65535)

/* What one launch needs beside the plan and the call; lives on the stack. */
typedef struct {
    unsigned int grid[3];
    CUstream stream;
    DLManagedTensorVersioned *scratch[2]; /* global, profile */
    uint64_t scratch_address[2];
    void *params[NJ_ARGUMENTS_MAX];
    uint64_t cells[NJ_ARGUMENTS_MAX]; /* the bytes of the params that are not passed as they came */
} nj_launch;

static int check_grid(const nj_plan *plan, const nj_signature *signature, const int64_t grid[3], nj_launch *launch)
{
    const int64_t limits[3] = {GRID_X_MAX / plan->num_ctas, GRID_YZ_MAX, GRID_YZ_MAX};
    for (int i = 0; i < 3; i++) {
        if (grid[i] < 0 || grid[i] > limits[i]) {
            PyObject *argument = PyUnicode_FromFormat("grid[%d]", i);
            PyObject *got = argument == NULL ? NULL : PyUnicode_FromFormat("%lld", (long long)grid[i]);
            nj_refuse(signature->kernel, argument, got, "expected 0 to %lld", (long long)limits[i]);
            Py_XDECREF(argument);
            return -1;
        }
        launch->grid[i] = (unsigned int)grid[i];
    }
    launch->grid[0] *= plan->num_ctas;
    return 0;
}

typedef struct {
    char text[256];
} nj_message;

static void keep_message(void *context, const char *kind, const char *message)
{
    nj_message *kept = context;
    PyOS_snprintf(kept->text, sizeof kept->text, "%s: %s", kind, message);
}

/* Bytes of scratch for the whole grid, room to align them included; false if that is no size at all. */
static bool scratch_size(const nj_scratch *scratch, const nj_launch *launch, int64_t *bytes)
{
    int64_t size = (int64_t)scratch->bytes;
    for (int i = 0; i < 3; i++) {
        if (__builtin_mul_overflow(size, (int64_t)launch->grid[i], &size)) {
            return false;
        }
    }
    return !__builtin_add_overflow(size, (int64_t)scratch->align, bytes);
}

static int allocate_scratch(const nj_plan *plan, const nj_scratch *scratch, const nj_call *call, int index,
                            nj_launch *launch)
{
    int64_t size;
    nj_message message = {"not a size that memory can have"};
    DLTensor prototype = {
        .device = {kDLCUDA, plan->ordinal}, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &size};
    if (!scratch_size(scratch, launch, &size) ||
        call->api->managed_tensor_allocator(&prototype, &launch->scratch[index], &message, keep_message) != 0) {
        PyErr_Clear(); /* a framework that raised beside calling `keep_message` */
        launch->scratch[index] = NULL;
        PyObject *what = PyUnicode_FromFormat("cannot allocate scratch memory (%s)", message.text);
        if (what != NULL) {
            nj_driver_error("managed_tensor_allocator", 2, "CUDA_ERROR_OUT_OF_MEMORY", what, plan->label);
            Py_DECREF(what);
        }
        return -1;
    }
    const DLTensor *tensor = &launch->scratch[index]->dl_tensor;
    uint64_t address = (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
    launch->scratch_address[index] = (address + scratch->align - 1) & ~(scratch->align - 1);
    return 0;
}

/* The framework frees scratch in the order of its own current stream: only there is it safe to give back early. */
static int check_scratch_stream(const nj_plan *plan, const nj_signature *signature, const nj_call *call,
                                const nj_launch *launch)
{
    if (call->api == NULL) {
        nj_refuse(signature->kernel, NULL, NULL,
                  "the kernel needs scratch memory: expected tensors of a framework with the DLPack C exchange API");
        return -1;
    }
    void *current;
    if (call->api->current_work_stream(kDLCUDA, plan->ordinal, &current) != 0) {
        return -1;
    }
    if (current != (void *)launch->stream) {
        nj_refuse(signature->kernel, signature->names[signature->count], PyUnicode_FromString("another stream"),
                  "the kernel needs scratch memory, which is of the framework's current stream: expected that one");
        return -1;
    }
    return 0;
}

static int borrow_scratch(const nj_plan *plan, const nj_signature *signature, const nj_call *call, nj_launch *launch)
{
    const nj_scratch *scratch[2] = {&plan->global_scratch, &plan->profile_scratch};
    if (scratch[0]->bytes == 0 && scratch[1]->bytes == 0) {
        return 0;
    }
    if (check_scratch_stream(plan, signature, call, launch) < 0) {
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        if (scratch[i]->bytes != 0 && allocate_scratch(plan, scratch[i], call, i, launch) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Gives the memory back to the framework while the kernel may still run: its allocator hands it out again only to
 * work on the same stream, which comes later. */
static void return_scratch(nj_launch *launch)
{
    for (int i = 0; i < 2; i++) {
        if (launch->scratch[i] != NULL && launch->scratch[i]->deleter != NULL) {
            launch->scratch[i]->deleter(launch->scratch[i]);
        }
    }
}

static int pack_float(nj_dtype dtype, double number, uint64_t *cell)
{
    float single = (float)number;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    switch (dtype) {
    case NJ_FP16: return PyFloat_Pack2(number, (char *)cell, 1);
    case NJ_BF16: *cell = bits >> 16; return 0; /* cut off, not rounded: as Triton does */
    default: *cell = bits; return 0;            /* NJ_FP32 */
    }
}

static int pack(const nj_plan *plan, const nj_signature *signature, nj_call *call, nj_launch *launch)
{
    for (Py_ssize_t i = 0; i < plan->slot_count; i++) {
        nj_slot slot = plan->slots[i];
        if (slot.source < 0) {
            launch->params[i] = &launch->scratch_address[NJ_SOURCE_GLOBAL_SCRATCH - slot.source];
        } else if (slot.dtype == NJ_FP16 || slot.dtype == NJ_BF16 || slot.dtype == NJ_FP32) {
            launch->params[i] = &launch->cells[i];
            if (pack_float(slot.dtype, nj_as_double(call->values[slot.source].bits), &launch->cells[i]) < 0) {
                nj_refuse_pending(signature->kernel, signature->names[slot.source], "expected a number that fits fp16");
                return -1;
            }
        } else {
            /* little-endian: the low bytes of a value are the value in fewer bytes; its range has chosen the variant */
            launch->params[i] = &call->values[slot.source].bits;
        }
    }
    return 0;
}

static nj_outcome enqueue(const nj_plan *plan, nj_launch *launch)
{
    /* a CUkernel stands for the function of whichever context is current, and outlives a reset of it */
    CUfunction function = (CUfunction)plan->function->handle;
    const unsigned int *grid = launch->grid;
    if (plan->attribute_count == 0) {
        return NJ_TRY(cuLaunchKernel, function, grid[0], grid[1], grid[2], plan->block_threads, 1, 1,
                      plan->shared_bytes, launch->stream, launch->params, NULL);
    }
    CUlaunchConfig config = {
        .gridDimX = grid[0],
        .gridDimY = grid[1],
        .gridDimZ = grid[2],
        .blockDimX = plan->block_threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = plan->shared_bytes,
        .hStream = launch->stream,
        .attrs = (CUlaunchAttribute *)plan->attributes,
        .numAttrs = plan->attribute_count,
    };
    return NJ_TRY(cuLaunchKernelEx, &config, function, launch->params, NULL);
}

static nj_outcome enqueue_on_device(const nj_plan *plan, nj_launch *launch)
{
    bool pushed;
    nj_outcome outcome = nj_context_enter(plan->device, &pushed);
    if (outcome.call == NULL) {
        outcome = enqueue(plan, launch);
        nj_context_leave(pushed);
    }
    return outcome;
}

/* Tries once more after somebody reset the device: libraries and kernels survive that, the context does not. */
static nj_outcome enqueue_again(const nj_plan *plan, nj_launch *launch)
{
    nj_outcome outcome = nj_device_renew(plan->device);
    if (outcome.call == NULL) {
        plan->function->shared_bytes[plan->ordinal] = 0;
        outcome = nj_plan_prepare(plan);
    }
    return outcome.call == NULL ? enqueue_on_device(plan, launch) : outcome;
}

static bool is_lost_context(nj_outcome outcome)
{
    return outcome.code == CUDA_ERROR_CONTEXT_IS_DESTROYED || outcome.code == CUDA_ERROR_INVALID_CONTEXT;
}

static int run(const nj_plan *plan, nj_launch *launch)
{
    nj_outcome outcome;
    /* the driver blocks where its queue is full, until other work ends: perhaps work that waits for the GIL */
    Py_BEGIN_ALLOW_THREADS
    outcome = enqueue_on_device(plan, launch);
    Py_END_ALLOW_THREADS
    if (is_lost_context(outcome)) {
        outcome = enqueue_again(plan, launch);
    }
    nj_device *device = plan->device;
    int status = nj_check(outcome, device, plan->label);
    if (status == 0) {
        if (device->last_label != plan->label) {
            Py_XSETREF(device->last_label, Py_NewRef(plan->label));
        }
        memcpy(device->last_grid, launch->grid, sizeof launch->grid);
    }
    return status;
}

int nj_plan_launch(nj_plan *plan, const nj_signature *signature, nj_call *call, const int64_t grid[3])
{
    nj_launch launch;
    if (check_grid(plan, signature, grid, &launch) < 0) {
        return -1;
    }
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) {
        return 0;
    }
    if (nj_forked()) {
        nj_raise_forked(plan->label);
        return -1;
    }
    void *stream;
    if (nj_find_stream(signature, call, &stream) < 0) {
        return -1;
    }
    launch.stream = stream;
    launch.scratch[0] = launch.scratch[1] = NULL;
    launch.scratch_address[0] = launch.scratch_address[1] = 0;
    int status = pack(plan, signature, call, &launch);
    if (status == 0) {
        status = borrow_scratch(plan, signature, call, &launch);
    }
    if (status == 0) {
        status = run(plan, &launch);
    }
    return_scratch(&launch);
    return status;
}
