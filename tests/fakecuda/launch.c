/* Launches: every fact is checked against the machine code, every argument byte is read and recorded. */
#include "state.h"

#include <string.h>

enum {
    DEFAULT_SHARED_BYTES = 48 << 10,
    PORTABLE_CLUSTER = 8,
    MAX_CLUSTER = 16,
    FAKE_MULTIPROCESSORS = 132,
    THREADS_PER_MULTIPROCESSOR = 2048,
};

static CUresult resolve(CUfunction handle, const CUlaunchConfig *config, struct fake_request *out) {
    struct fake_context *context = fake_current();
    struct fake_function_handle *function = NULL;
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->lost)
        return context->lost;
    out->kernel = fake_find_kernel(handle);
    if (!out->kernel && (function = fake_find_function(handle))) {
        out->kernel = function->kernel;
        if (function->device != context->device || function->epoch != context->epoch)
            return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!out->kernel)
        return fake_violation(CUDA_ERROR_INVALID_HANDLE, "launch of a handle that is no kernel");
    if (out->kernel->library->dead)
        return fake_violation(CUDA_ERROR_INVALID_HANDLE, "launch after the library was unloaded");
    CUdevice home = out->kernel->library->device;
    if (home >= 0 && home != context->device)
        return fake_violation(CUDA_ERROR_INVALID_HANDLE, "launch on device %d of a module of device %d", context->device, home);
    if (!cubin_runs_on(&out->kernel->library->cubin, fake.capability[context->device]))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if ((uintptr_t)config->hStream > 2) {
        struct fake_stream *stream = fake_find_stream(config->hStream);
        if (!stream || stream->device != context->device)
            return CUDA_ERROR_INVALID_HANDLE;
    }
    out->device = context->device;
    return CUDA_SUCCESS;
}

static CUresult check_capture(const CUlaunchConfig *config) {
    struct fake_stream *stream = fake_find_stream(config->hStream);
    if (stream && stream->capture == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    /* the legacy stream waits for every blocking stream, a captured one too */
    if ((uintptr_t)config->hStream <= 1)
        for (stream = fake.streams; stream; stream = stream->next)
            if (stream->capture && !(stream->flags & CU_STREAM_NON_BLOCKING)) {
                fake_break_capture("a launch on the legacy stream");
                return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            }
    return CUDA_SUCCESS;
}

static CUresult check_shape(const struct fake_request *request) {
    const CUlaunchConfig *c = request->config;
    const struct cubin_kernel *code = request->kernel->code;
    if (c->gridDimX == 0 || c->gridDimY == 0 || c->gridDimZ == 0 || c->gridDimX > 0x7fffffff ||
        c->gridDimY > 65535 || c->gridDimZ > 65535)
        return fake_violation(CUDA_ERROR_INVALID_VALUE, "%s: grid %u x %u x %u", code->symbol, c->gridDimX,
                              c->gridDimY, c->gridDimZ);
    const uint32_t *want = code->reqntid;
    uint64_t threads = (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ;
    if (threads == 0 || threads > 1024)
        return fake_violation(CUDA_ERROR_INVALID_VALUE, "%s: block of %llu threads", code->symbol,
                              (unsigned long long)threads);
    if (want[0] && (c->blockDimX != want[0] || c->blockDimY != want[1] || c->blockDimZ != want[2]))
        return fake_violation(CUDA_ERROR_INVALID_VALUE, "%s: block %u x %u x %u, image needs %u x %u x %u",
                              code->symbol, c->blockDimX, c->blockDimY, c->blockDimZ, want[0], want[1], want[2]);
    int64_t limit = fake_raised(request->kernel, request->device)->shared_bytes;
    if (fake.capability[request->device] >= 900)
        limit = fake_shared_optin(fake.capability[request->device]);
    else if (limit == 0)
        limit = DEFAULT_SHARED_BYTES - (int64_t)code->static_shared;
    if (c->sharedMemBytes > limit)
        return fake_violation(CUDA_ERROR_INVALID_VALUE, "%s: %u bytes of shared memory, the limit is %lld",
                              code->symbol, c->sharedMemBytes, (long long)limit);
    return CUDA_SUCCESS;
}

static const CUlaunchAttribute *find_attribute(const CUlaunchConfig *config, int id) {
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == id)
            return &config->attrs[i];
    return NULL;
}

/* The most that the value of an attribute may be; the least is 0, but for a carve-out. -1 for an attribute unknown here. */
static int last_value(int id) {
    switch (id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        return 1;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return 2;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return 100;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        return MAX_CLUSTER;
    default:
        return -1;
    }
}

static CUresult check_attributes(const struct fake_request *request) {
    const CUlaunchConfig *config = request->config;
    if (config->numAttrs && !config->attrs)
        return fake_violation(CUDA_ERROR_INVALID_VALUE, "%u launch attributes at a null pointer", config->numAttrs);
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *one = &config->attrs[i];
        int least = one->id == CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ? -1 : 0;
        if (last_value(one->id) < 0)
            return fake_violation(CUDA_ERROR_INVALID_VALUE, "launch attribute %d is not known here", one->id);
        if (find_attribute(config, one->id) != one)
            return fake_violation(CUDA_ERROR_INVALID_VALUE, "launch attribute %d is given twice", one->id);
        if (one->value.number < least || one->value.number > last_value(one->id))
            return fake_violation(CUDA_ERROR_INVALID_VALUE, "launch attribute %d is %d", one->id, one->value.number);
        if (one->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
            fake.capability[request->device] < 90)
            return fake_violation(CUDA_ERROR_NOT_SUPPORTED, "a dependent launch on a device before sm_90");
    }
    return CUDA_SUCCESS;
}

static CUresult check_cluster(const struct fake_request *request) {
    const CUlaunchConfig *config = request->config;
    const struct cubin_kernel *code = request->kernel->code;
    const CUlaunchAttribute *asked = find_attribute(config, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    unsigned x = code->cluster[0] ? code->cluster[0] : 1, y = code->cluster[0] ? code->cluster[1] : 1;
    if (asked) {
        unsigned ax = asked->value.clusterDim.x, ay = asked->value.clusterDim.y, az = asked->value.clusterDim.z;
        if (code->cluster[0] && (ax != x || ay != y || az != 1))
            return fake_violation(CUDA_ERROR_INVALID_CLUSTER_SIZE, "%s: cluster %u x %u x %u, image needs %u x %u",
                                  code->symbol, ax, ay, az, x, y);
        x = ax, y = ay * az;
    }
    if (x * y == 1)
        return CUDA_SUCCESS;
    unsigned limit = fake_raised(request->kernel, request->device)->non_portable_cluster ? MAX_CLUSTER : PORTABLE_CLUSTER;
    if (x == 0 || y == 0 || x * y > limit || config->gridDimX % x || fake.capability[request->device] < 90)
        return fake_violation(CUDA_ERROR_INVALID_CLUSTER_SIZE, "%s: cluster of %u x %u on a grid %u wide, limit %u",
                              code->symbol, x, y, config->gridDimX, limit);
    return CUDA_SUCCESS;
}

static CUresult check_cooperative(const CUlaunchConfig *config) {
    const CUlaunchAttribute *asked = find_attribute(config, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
    uint64_t blocks = (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ;
    uint64_t resident = (uint64_t)FAKE_MULTIPROCESSORS * (THREADS_PER_MULTIPROCESSOR / config->blockDimX);
    if (asked && asked->value.number && blocks > resident)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return CUDA_SUCCESS;
}

static CUresult record_facts(const struct fake_request *request, struct fake_launch_record *record) {
    const CUlaunchConfig *c = request->config;
    if (c->numAttrs > FAKE_ATTRS_MAX)
        return fake_violation(CUDA_ERROR_INVALID_VALUE, "%u launch attributes", c->numAttrs);
    strcpy(record->symbol, request->kernel->code->symbol);
    record->kernel = request->kernel;
    record->stream = (uint64_t)(uintptr_t)c->hStream;
    memcpy(record->grid, (uint32_t[]){c->gridDimX, c->gridDimY, c->gridDimZ}, sizeof record->grid);
    memcpy(record->block, (uint32_t[]){c->blockDimX, c->blockDimY, c->blockDimZ}, sizeof record->block);
    record->shared_bytes = c->sharedMemBytes;
    record->carveout = fake_raised(request->kernel, request->device)->carveout - 1;
    record->device = request->device;
    record->attrs = c->numAttrs;
    for (unsigned i = 0; i < c->numAttrs; i++) {
        record->attr[i].id = c->attrs[i].id;
        memcpy(record->attr[i].value, &c->attrs[i].value, sizeof record->attr[i].value);
    }
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction handle, const CUlaunchConfig *config, void **params, void **extra) {
    struct fake_request request = {.config = config, .params = params, .extra = extra};
    struct fake_launch_record *record = &fake.launch[fake.launches % FAKE_LAUNCHES];
    if (params && extra)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult code = resolve(handle, config, &request);
    if (code == CUDA_SUCCESS)
        code = check_capture(config);
    if (code == CUDA_SUCCESS)
        code = check_shape(&request);
    if (code == CUDA_SUCCESS)
        code = check_attributes(&request);
    if (code == CUDA_SUCCESS)
        code = check_cluster(&request);
    if (code == CUDA_SUCCESS)
        code = check_cooperative(config);
    if (code == CUDA_SUCCESS)
        code = fake_read_params(&request, record);
    if (code == CUDA_SUCCESS)
        code = record_facts(&request, record);
    fake.launches += code == CUDA_SUCCESS;
    return code;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                               CUstream stream, void **params, void **extra) {
    CUlaunchConfig config = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, NULL, 0};
    ENTER(cuLaunchKernel);
    LEAVE(cuLaunchKernel, launch(function, &config, params, extra));
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
    ENTER(cuLaunchKernelEx);
    LEAVE(cuLaunchKernelEx, launch(function, config, params, extra));
}
