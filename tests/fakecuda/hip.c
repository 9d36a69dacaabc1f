/* The fake driver as `libamdhip64`: HIP's names over the same rules. Built into the file of `build_hip` alone.
 *
 * A thread always has a current device, the first one at first; modules are on the device that was current when they were loaded. */
#include "state.h"

#include <stdio.h>
#include <string.h>

enum { PROPERTIES_BYTES = 1472, GCN_ARCH_NAME = 1160, ATTRIBUTE_MULTIPROCESSORS = 63 };

extern CUresult cuInit(unsigned flags);
extern CUresult cuDriverGetVersion(int *version);
extern CUresult cuDeviceGetCount(int *count);
extern CUresult cuDeviceGet(CUdevice *device, int ordinal);
extern CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
extern CUresult cuDeviceGetName(char *name, int space, CUdevice device);
extern CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
extern CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
extern CUresult cuCtxSetCurrent(CUcontext context);
extern CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address);
extern CUresult cuLibraryLoadData(CUlibrary *out, const void *code, int *, void **, unsigned, int *, void **, unsigned);
extern CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name);
extern CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream);
extern CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
extern CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra);
extern CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                               void **params, void **extra);

/* This thread's current device; its context is on the stack of the fake once a call needs one. */
static _Thread_local int current;

static CUresult select_device(int device) {
    CUcontext context;
    CUresult code = cuDevicePrimaryCtxRetain(&context, device);
    return code == CUDA_SUCCESS ? cuCtxSetCurrent(context) : code;
}

static CUresult ready(void) { return fake_current() ? CUDA_SUCCESS : select_device(current); }

EXPORT CUresult hipInit(unsigned flags) { return cuInit(flags); }

/* 60443483 is 6.4; the fake holds 6040 */
EXPORT CUresult hipDriverGetVersion(int *version) {
    CUresult code = cuDriverGetVersion(version);
    *version = *version / 1000 * 10000000 + *version % 1000 / 10 * 100000 + 43483;
    return code;
}

EXPORT CUresult hipDrvGetErrorName(CUresult code, const char **name) {
    static const struct {
        CUresult code;
        const char *name;
    } known[] = {{1, "hipErrorInvalidValue"}, {2, "hipErrorOutOfMemory"}, {3, "hipErrorNotInitialized"}, {100, "hipErrorNoDevice"},
                 {101, "hipErrorInvalidDevice"}, {200, "hipErrorInvalidImage"}, {201, "hipErrorInvalidContext"},
                 {209, "hipErrorNoBinaryForGpu"}, {400, "hipErrorInvalidHandle"}, {500, "hipErrorNotFound"},
                 {700, "hipErrorIllegalAddress"}, {719, "hipErrorLaunchFailure"}, {801, "hipErrorNotSupported"},
                 {900, "hipErrorStreamCaptureUnsupported"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].code == code) {
            *name = known[i].name;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult hipGetDeviceCount(int *count) { return cuDeviceGetCount(count); }

EXPORT CUresult hipDeviceGet(int *device, int ordinal) { return cuDeviceGet(device, ordinal); }

EXPORT CUresult hipDeviceGetAttribute(int *value, int attribute, int device) {
    if (attribute != ATTRIBUTE_MULTIPROCESSORS)
        return fake_violation(CUDA_ERROR_INVALID_VALUE, "device attribute %d of HIP is not known here", attribute);
    return cuDeviceGetAttribute(value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
}

EXPORT CUresult hipDeviceGetName(char *name, int space, int device) { return cuDeviceGetName(name, space, device); }

EXPORT CUresult hipDeviceTotalMem(size_t *bytes, int device) { return cuDeviceTotalMem_v2(bytes, device); }

EXPORT CUresult hipGetDevicePropertiesR0600(char *properties, int device) {
    CUdevice known;
    CUresult code = cuDeviceGet(&known, device);
    if (code == CUDA_SUCCESS) {
        memset(properties, 0, PROPERTIES_BYTES);
        /* 9010 stands for gfx90a, whose name has a letter */
        const char *form = fake.capability[device] == 9010 ? "gfx90a:sramecc+:xnack-" : "gfx%u:sramecc+:xnack-";
        snprintf(properties + GCN_ARCH_NAME, 256, form, fake.capability[device]);
    }
    return code;
}

EXPORT CUresult hipGetDevice(int *device) {
    *device = fake_current() ? (int)(fake_current() - fake.context) : current;
    return CUDA_SUCCESS;
}

EXPORT CUresult hipSetDevice(int device) {
    CUresult code = select_device(device);
    if (code == CUDA_SUCCESS)
        current = device;
    return code;
}

EXPORT CUresult hipPointerGetAttribute(void *value, int attribute, CUdeviceptr address) {
    CUresult code = ready();
    return code == CUDA_SUCCESS ? cuPointerGetAttribute(value, attribute, address) : code;
}

EXPORT CUresult hipModuleLoadData(CUlibrary *module, const void *code) {
    CUresult made = ready();
    if (made == CUDA_SUCCESS)
        made = cuLibraryLoadData(module, code, NULL, NULL, 0, NULL, NULL, 0);
    if (made == CUDA_SUCCESS)
        (*module)->device = fake_current()->device;
    return made;
}

EXPORT CUresult hipModuleGetFunction(CUfunction *function, CUlibrary module, const char *name) {
    return cuLibraryGetKernel(function, module, name);
}

EXPORT CUresult hipModuleLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                      unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,
                                      void **extra) {
    CUresult code = ready();
    return code == CUDA_SUCCESS ? cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                                                 params, extra)
                                : code;
}

EXPORT CUresult hipModuleLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                                 CUstream stream, void **params) {
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.number = 1};
    CUlaunchConfig config = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, &cooperative, 1};
    CUresult code = ready();
    return code == CUDA_SUCCESS ? cuLaunchKernelEx(&config, function, params, NULL) : code;
}

EXPORT CUresult hipMallocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
    CUresult code = ready();
    return code == CUDA_SUCCESS ? cuMemAllocAsync(address, bytes, stream) : code;
}

EXPORT CUresult hipFreeAsync(CUdeviceptr address, CUstream stream) {
    CUresult code = ready();
    return code == CUDA_SUCCESS ? cuMemFreeAsync(address, stream) : code;
}

EXPORT CUresult hipMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = *total_bytes = (size_t)192 << 30;
    return fake.sticky;
}
