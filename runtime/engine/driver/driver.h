/* The GPU driver: NVIDIA's or AMD's, whichever this process finds, loaded when first needed, never linked. Its calls are named as
 * CUDA's; `hip/` fills in what HIP has for each. Needs no lock of the caller's, and waits: for its own locks, and for the
 * driver. */
#ifndef NOJIT_DRIVER_DRIVER_H
#define NOJIT_DRIVER_DRIVER_H

#include "base/error.h"
#include "driver/abi.h"

#include <stdatomic.h>
#include <stdbool.h>

/* name, symbol (cuda.h maps some names to versioned ones), parameters, whether every CUDA driver that we support has it. NULL in
 * `nj_calls` where it is false and the driver lacks the call, and for HIP where a comment says so */
#define NJ_DRIVER_CALLS(X)                                                                                             \
    X(cuInit, "cuInit", (unsigned int flags), true)                                                                    \
    X(cuDriverGetVersion, "cuDriverGetVersion", (int *version), true)                                                  \
    X(cuGetErrorName, "cuGetErrorName", (CUresult error, const char **name), true)                                     \
    X(cuDeviceGetCount, "cuDeviceGetCount", (int *count), true)                                                        \
    X(cuDeviceGet, "cuDeviceGet", (CUdevice * device, int ordinal), true)                                              \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device), true)                \
    X(cuDeviceGetName, "cuDeviceGetName", (char *name, int space, CUdevice device), true)                              \
    X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t * bytes, CUdevice device), true)                                \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device), true)              \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device), true)                              \
    X(cuCtxGetCurrent, "cuCtxGetCurrent", (CUcontext * context), true)                                                 \
    X(cuCtxGetDevice, "cuCtxGetDevice", (CUdevice * device), true)                                                     \
    X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext context), true)                                              \
    X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext * context), true)                                              \
    X(cuPointerGetAttribute, "cuPointerGetAttribute", (void *value, int attribute, CUdeviceptr address), true)         \
    X(cuLibraryLoadData, "cuLibraryLoadData",                                                                          \
      (CUlibrary * library, const void *code, int *jit_options, void **jit_values, unsigned int jit_count,             \
       int *options, void **values, unsigned int count),                                                               \
      true)                                                                                                            \
    X(cuLibraryGetKernel, "cuLibraryGetKernel", (CUkernel * kernel, CUlibrary library, const char *name), true)        \
    X(cuKernelGetFunction, "cuKernelGetFunction", (CUfunction * function, CUkernel kernel), true)                      \
    /* HIP: NULL, a launch needs no limits raised */                                                                   \
    X(cuKernelSetAttribute, "cuKernelSetAttribute", (int attribute, int value, CUkernel kernel, CUdevice device),      \
      true)                                                                                                            \
    X(cuKernelGetParamInfo, "cuKernelGetParamInfo",                                                                    \
      (CUkernel kernel, size_t index, size_t *offset_bytes, size_t *size_bytes), false)                                \
    X(cuMemAllocAsync, "cuMemAllocAsync", (CUdeviceptr * address, size_t bytes, CUstream stream), true)                \
    X(cuMemFreeAsync, "cuMemFreeAsync", (CUdeviceptr address, CUstream stream), true)                                  \
    X(cuMemGetInfo, "cuMemGetInfo_v2", (size_t * free_bytes, size_t * total_bytes), false)                             \
    /* HIP: NULL */                                                                                                    \
    X(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                                                \
      (CUtensorMap * map, int type, uint32_t rank, void *address, const uint64_t *dimensions,                          \
       const uint64_t *stride_bytes, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle,          \
       int promotion, int fill),                                                                                       \
      true)                                                                                                            \
    X(cuLaunchKernel, "cuLaunchKernel",                                                                                \
      (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,       \
       unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params,          \
       void **extra),                                                                                                  \
      true)                                                                                                            \
    X(cuLaunchKernelEx, "cuLaunchKernelEx",                                                                            \
      (const CUlaunchConfig *config, CUfunction function, void **params, void **extra), true)

/* The calls of the driver that was found. */
typedef struct {
#define NJ_DECLARE(name, symbol, parameters, required) CUresult(*name) parameters;
    NJ_DRIVER_CALLS(NJ_DECLARE)
#undef NJ_DECLARE
} nj_driver_calls;

/* Filled once, before `nj_driver_ready` first succeeds. */
extern nj_driver_calls nj_calls;

/* A vendor's driver: its names, files and error codes, beside its calls. */
typedef struct {
    const char *name;     /* of the interface: CUDA */
    const char *release;  /* what its versions are those of: ROCm */
    const char *variable; /* of the environment, names another file */
    const char *files[4]; /* to open, the first that is there */
    const char *needed;   /* for messages */
    int dlpack_device;    /* the type of its devices in DLPack */
    bool per_device;      /* an image is loaded on the current device alone */
    bool lazy;            /* any call may start the driver */
    int too_old;          /* the code of an image that the driver is too old for, and its name */
    const char *too_old_name;
    const char *not_initialized_name;
    const char *(*find)(void *library);                   /* fills `nj_calls`; the name of a symbol that is missing, or NULL */
    /* as base/arch.h numbers them; `name` is that of an arch without a number, else empty */
    CUresult (*arch)(int *number, nj_text *name, CUdevice device);
    const char *(*spell)(const char *call);               /* its own name of a call */
} nj_vendor;

extern const nj_vendor nj_vendor_cuda, nj_vendor_hip;

/* The vendor whose driver was found; CUDA's before one is. */
NJ_FOR_BINDING extern const nj_vendor *nj_vendor_found;

/* One GPU as this process sees it. */
typedef struct {
    CUdevice handle;
    int ordinal;
    _Atomic(CUcontext) primary; /* retained for the life of the process; NULL until first needed */
    atomic_uint epoch;          /* how often the primary context was renewed: limits of kernels end with a context */
} nj_device;

#define NJ_DEVICES_MAX 64

/* The outcome of a call of the driver. */
typedef struct {
    const char *call; /* NULL: nothing failed */
    CUresult code;
} nj_outcome;

#define NJ_SUCCESS ((nj_outcome){NULL, CUDA_SUCCESS})

/* Calls the driver and yields an outcome. */
#define NJ_TRY(function, ...) nj_outcome_of(nj_calls.function(__VA_ARGS__), #function)

static inline nj_outcome nj_outcome_of(CUresult code, const char *call)
{
    return (nj_outcome){code == CUDA_SUCCESS ? NULL : call, code};
}

/* Whether nothing failed; fills `error` if something did, and notes errors that only a new process mends. */
bool nj_outcome_good(nj_outcome outcome, nj_error *error);

/* Whether the context is lost with an error ("the process must be terminated and relaunched", cuda.h). */
NJ_FOR_BINDING bool nj_is_sticky(CUresult code);

/* Loads and initialises the driver; false with `error` filled. Tries again after a failure. */
NJ_FOR_BINDING bool nj_driver_ready(nj_error *error);

/* Whether `nj_driver_ready` has succeeded; waits for nothing. */
NJ_FOR_BINDING bool nj_driver_known(void);

/* Looks the symbols of a driver up that the process has opened already, and calls nothing of it; whether all are known. */
NJ_FOR_BINDING bool nj_driver_find(void);

/* Whether this process is a fork of one that had initialised CUDA: no driver call can succeed here. */
NJ_FOR_BINDING bool nj_forked(void);

/* Fills the error of a forked process. False. */
NJ_FOR_BINDING bool nj_refuse_forked(nj_error *error);

/* Whether CUDA works in this process, as far as it is used: asks each device in use for an error that only a new process
 * mends. Takes no part in a capture. */
NJ_FOR_BINDING bool nj_driver_healthy(void);

/* The device with its primary context retained; NULL with `error` filled. */
NJ_FOR_BINDING nj_device *nj_device_ready(int ordinal, nj_error *error);

/* Whether somebody has reset the device: the primary context is gone, libraries and kernels are not. */
static inline bool nj_is_lost(nj_outcome outcome)
{
    return outcome.code == CUDA_ERROR_CONTEXT_IS_DESTROYED || outcome.code == CUDA_ERROR_INVALID_CONTEXT;
}

/* Retains the primary context again after a reset destroyed it, if nobody has since `epoch`. */
nj_outcome nj_device_renew(nj_device *device, unsigned int epoch);

/* Work that needs a device's context. */
typedef nj_outcome (*nj_work)(void *facts);

/* Does the work, and does it again in a new context if somebody has reset the device: libraries and kernels survive a reset, the
 * context and the limits in it do not. */
static inline nj_outcome nj_on_device(nj_device *device, nj_work work, void *facts)
{
    unsigned int epoch = atomic_load_explicit(&device->epoch, memory_order_relaxed);
    nj_outcome outcome = work(facts);
    if (nj_is_lost(outcome)) {
        outcome = nj_device_renew(device, epoch);
        if (outcome.call == NULL) {
            outcome = work(facts);
        }
    }
    return outcome;
}

/* Makes the device's primary context current for a moment, unless a context of the device is. */
nj_outcome nj_context_enter(const nj_device *device, bool *pushed);
void nj_context_leave(bool pushed);

/* The ordinal of the current context's device, 0 if there is no context; -1 with `error` filled. */
NJ_FOR_BINDING int nj_current_device(nj_error *error);

#endif
