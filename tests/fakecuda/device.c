/* Initialisation, devices and contexts. */
#include "state.h"

#include <stdio.h>
#include <string.h>

enum { CONTEXT_STACK_MAX = 16 };

static _Thread_local struct {
    unsigned generation;
    int depth;
    struct fake_context *context[CONTEXT_STACK_MAX];
} stack;

static void refresh_stack(void) {
    if (stack.generation != fake.generation) {
        stack.generation = fake.generation;
        stack.depth = 0;
    }
}

struct fake_context *fake_current(void) {
    refresh_stack();
    return stack.depth ? stack.context[stack.depth - 1] : NULL;
}

static int is_context(const struct fake_context *context) {
    return context >= fake.context && context < fake.context + FAKE_DEVICES_MAX;
}

static int is_active(const struct fake_context *context) { return is_context(context) && context->retained > 0; }

/* What a context that is not active gives. */
static CUresult refusal_of(const struct fake_context *context) {
    return is_context(context) && context->lost ? context->lost : CUDA_ERROR_INVALID_CONTEXT;
}

static int is_device(CUdevice device) { return device >= 0 && device < fake.devices; }

int fake_shared_optin(unsigned capability) {
    switch (capability) {
    case 75:
        return 64 << 10;
    case 80:
    case 87:
        return 163 << 10;
    case 86:
    case 89:
    case 120:
    case 121:
        return 99 << 10;
    case 942:
    case 1201:
        return 64 << 10;
    case 950:
        return 160 << 10;
    default:
        return capability >= 90 ? 227 << 10 : 96 << 10;
    }
}

EXPORT CUresult cuInit(unsigned flags) {
    ENTER(cuInit);
    if (flags != 0)
        LEAVE(cuInit, CUDA_ERROR_INVALID_VALUE);
    if (fake.devices == 0)
        LEAVE(cuInit, CUDA_ERROR_NO_DEVICE);
    fake.initialised = 1;
    LEAVE(cuInit, CUDA_SUCCESS);
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    ENTER(cuDriverGetVersion);
    *version = fake.driver_version;
    LEAVE(cuDriverGetVersion, CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetCount(int *count) {
    ENTER(cuDeviceGetCount);
    *count = fake.devices;
    LEAVE(cuDeviceGetCount, CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER(cuDeviceGet);
    if (!is_device(ordinal))
        LEAVE(cuDeviceGet, CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    LEAVE(cuDeviceGet, CUDA_SUCCESS);
}

static int attribute_value(int attribute, unsigned capability, int *value) {
    const struct {
        int attribute, value;
    } known[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, (int)capability / 10},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, (int)capability % 10},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, fake_shared_optin(capability) + 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
        {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, fake_shared_optin(capability)},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, capability >= 90},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].attribute == attribute) {
            *value = known[i].value;
            return 1;
        }
    return 0;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    ENTER(cuDeviceGetAttribute);
    if (!is_device(device))
        LEAVE(cuDeviceGetAttribute, CUDA_ERROR_INVALID_DEVICE);
    if (!attribute_value(attribute, fake.capability[device], value))
        LEAVE(cuDeviceGetAttribute, CUDA_ERROR_INVALID_VALUE);
    if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT && fake.multiprocessors[device])
        *value = fake.multiprocessors[device];
    LEAVE(cuDeviceGetAttribute, CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetName(char *name, int space, CUdevice device) {
    ENTER(cuDeviceGetName);
    if (!is_device(device))
        LEAVE(cuDeviceGetName, CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)space, "Fake GPU sm_%u", fake.capability[device]);
    LEAVE(cuDeviceGetName, CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER(cuDeviceTotalMem_v2);
    if (!is_device(device))
        LEAVE(cuDeviceTotalMem_v2, CUDA_ERROR_INVALID_DEVICE);
    *bytes = fake.memory_bytes[device] ? fake.memory_bytes[device] : (size_t)140 << 30;
    LEAVE(cuDeviceTotalMem_v2, CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER(cuDevicePrimaryCtxRetain);
    if (!is_device(device))
        LEAVE(cuDevicePrimaryCtxRetain, CUDA_ERROR_INVALID_DEVICE);
    fake.context[device].retained++;
    fake.context[device].lost = CUDA_SUCCESS;
    *context = &fake.context[device];
    LEAVE(cuDevicePrimaryCtxRetain, CUDA_SUCCESS);
}

static CUresult release(CUdevice device) {
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    struct fake_context *context = &fake.context[device];
    if (context->retained == 0)
        return fake_violation(CUDA_ERROR_INVALID_CONTEXT, "device %d: primary context released too often", device);
    if (--context->retained == 0)
        context->epoch++;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER(cuDevicePrimaryCtxRelease_v2);
    LEAVE(cuDevicePrimaryCtxRelease_v2, release(device));
}

/* As the driver does: handles of functions die, libraries and kernels live on. */
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    ENTER(cuDevicePrimaryCtxReset_v2);
    if (!is_device(device))
        LEAVE(cuDevicePrimaryCtxReset_v2, CUDA_ERROR_INVALID_DEVICE);
    if (fake_capturing())
        LEAVE(cuDevicePrimaryCtxReset_v2, fake_break_capture("cuDevicePrimaryCtxReset"));
    fake.context[device].epoch++;
    LEAVE(cuDevicePrimaryCtxReset_v2, CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    ENTER(cuDevicePrimaryCtxGetState);
    if (!is_device(device))
        LEAVE(cuDevicePrimaryCtxGetState, CUDA_ERROR_INVALID_DEVICE);
    *flags = 0;
    *active = fake.context[device].retained > 0;
    LEAVE(cuDevicePrimaryCtxGetState, CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER(cuCtxGetCurrent);
    *context = fake_current();
    LEAVE(cuCtxGetCurrent, CUDA_SUCCESS);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER(cuCtxSetCurrent);
    refresh_stack();
    if (context && !is_active(context))
        LEAVE(cuCtxSetCurrent, refusal_of(context));
    if (stack.depth)
        stack.depth--;
    if (context)
        stack.context[stack.depth++] = context;
    LEAVE(cuCtxSetCurrent, CUDA_SUCCESS);
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
    ENTER(cuCtxPushCurrent_v2);
    refresh_stack();
    if (!is_active(context))
        LEAVE(cuCtxPushCurrent_v2, refusal_of(context));
    if (stack.depth == CONTEXT_STACK_MAX)
        LEAVE(cuCtxPushCurrent_v2, fake_violation(CUDA_ERROR_INVALID_VALUE, "context pushed %d deep", stack.depth));
    stack.context[stack.depth++] = context;
    LEAVE(cuCtxPushCurrent_v2, CUDA_SUCCESS);
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    ENTER(cuCtxPopCurrent_v2);
    refresh_stack();
    if (!stack.depth)
        LEAVE(cuCtxPopCurrent_v2, fake_violation(CUDA_ERROR_INVALID_CONTEXT, "context popped off an empty stack"));
    stack.depth--;
    if (context)
        *context = stack.context[stack.depth];
    LEAVE(cuCtxPopCurrent_v2, CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER(cuCtxGetDevice);
    struct fake_context *context = fake_current();
    if (!context)
        LEAVE(cuCtxGetDevice, CUDA_ERROR_INVALID_CONTEXT);
    if (context->lost)
        LEAVE(cuCtxGetDevice, context->lost);
    *device = context->device;
    LEAVE(cuCtxGetDevice, CUDA_SUCCESS);
}

EXPORT CUresult cuCtxSynchronize(void) {
    ENTER(cuCtxSynchronize);
    if (!fake_current())
        LEAVE(cuCtxSynchronize, CUDA_ERROR_INVALID_CONTEXT);
    if (fake_capturing())
        LEAVE(cuCtxSynchronize, fake_break_capture("cuCtxSynchronize"));
    LEAVE(cuCtxSynchronize, CUDA_SUCCESS);
}

/* --- control --- */

/* The depth of this thread's context stack, with the device on top of it (-1: none). */
EXPORT int fake_context_depth(int *device) {
    struct fake_context *context = fake_current();
    *device = context ? context->device : -1;
    return stack.depth;
}

EXPORT int fake_context_retained(CUdevice device) { return is_device(device) ? fake.context[device].retained : -1; }

/* Take the primary context away, as another library's reset does: calls in it give `code` until it is retained again. */
EXPORT void fake_lose_context(CUdevice device, CUresult code) {
    fake.context[device].retained = 0;
    fake.context[device].epoch++;
    fake.context[device].lost = code;
}
