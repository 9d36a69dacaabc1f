/* The GPU driver, NVIDIA's or AMD's. nojit does not link it; the first use opens the one that is installed. All calls have the names of
 * CUDA's driver API; `hip/` implements them with HIP. Every function is thread-safe, and may block on nojit's locks or in the driver. */
#ifndef NOJIT_DRIVER_DRIVER_H
#define NOJIT_DRIVER_DRIVER_H

#include "base/error.h"
#include "driver/abi.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Each entry: the name, the symbol (cuda.h maps some names to versioned symbols), the parameters, and true if every supported CUDA
 * driver has the call. An optional call that the driver lacks is NULL in `nj_calls`, and so is a call that a comment says HIP lacks. */
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
    /* HIP: NULL, since its launches have no limits to raise */                                                        \
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

/* The functions of the opened driver. */
typedef struct {
#define NJ_DECLARE(name, symbol, parameters, required) CUresult(*name) parameters;
    NJ_DRIVER_CALLS(NJ_DECLARE)
#undef NJ_DECLARE
} nj_driver_calls;

/* The functions of this process's driver; filled once, before `nj_driver_ready` first succeeds. */
extern nj_driver_calls nj_calls;

/* The facts of a vendor's driver other than its calls: names, files and error codes. */
typedef struct {
    const char *name;                   /* name of the API: CUDA or HIP */
    const char *release;                /* name of the product whose version the driver reports: CUDA or ROCm */
    const char *variable;               /* environment variable that names another file to open */
    const char *files[4];               /* file names to try, in this order */
    const char *needed;                 /* the required driver, for error messages */
    int dlpack_device;                  /* DLDeviceType of its devices */
    bool per_device;                    /* true if a load puts an image only on the current device */
    bool lazy;                          /* true if any call may initialise the driver */
    int too_old;                        /* error code of an image that needs a newer driver */
    const char *too_old_name;           /* name of that code */
    const char *not_initialized_name;   /* name of the code of a driver that is not initialised */
    const char *(*find)(void *library); /* fills `nj_calls`; returns the name of a missing symbol, or NULL */
    /* Reads the arch of a device as a number (base/arch.h). If it has none, `name` becomes the arch's name, else empty. */
    CUresult (*arch)(int *number, nj_text *name, CUdevice device);
    const char *(*spell)(const char *call); /* returns the vendor's name of a call of CUDA's driver API */
} nj_vendor;

extern const nj_vendor nj_vendor_cuda, nj_vendor_hip;

/* The vendor of the opened driver; CUDA until a driver is open. */
NJ_FOR_BINDING extern const nj_vendor *nj_vendor_found;

/* One GPU as this process sees it. */
typedef struct {
    CUdevice handle;
    int ordinal;
    _Atomic(CUcontext) primary; /* primary context, retained for the life of the process; NULL until first needed */
    atomic_uint epoch;          /* number of times that the primary context was renewed; a new context has no raised limits */
} nj_device;

#define NJ_DEVICES_MAX 64

/* The result of a driver call. */
typedef struct {
    const char *call; /* the call that failed; NULL on success */
    CUresult code;
} nj_outcome;

#define NJ_SUCCESS ((nj_outcome){NULL, CUDA_SUCCESS})

/* Calls the driver and returns an nj_outcome. */
#define NJ_TRY(function, ...) nj_outcome_of(nj_calls.function(__VA_ARGS__), #function)

static inline nj_outcome nj_outcome_of(CUresult code, const char *call)
{
    return (nj_outcome){code == CUDA_SUCCESS ? NULL : call, code};
}

/* True on success, else false with `error` filled. Records sticky errors, after which `nj_driver_healthy` is false. */
bool nj_outcome_good(nj_outcome outcome, nj_error *error);

/* True for an error that destroys the context ("the process must be terminated and relaunched", cuda.h). */
NJ_FOR_BINDING bool nj_is_sticky(CUresult code);

/* Loads and initialises the driver. False with `error` filled; the next call then tries again. */
NJ_FOR_BINDING bool nj_driver_ready(nj_error *error);

/* True once `nj_driver_ready` has succeeded. Never blocks. */
NJ_FOR_BINDING bool nj_driver_known(void);

/* Looks up the symbols of a driver that the process has already opened, without calling it. True if it has all of them. */
NJ_FOR_BINDING bool nj_driver_find(void);

/* True in a child forked after its parent initialised the driver. No driver call can succeed there. */
NJ_FOR_BINDING bool nj_forked(void);

/* Fills the error that the process forked after it initialised the driver. Returns false. */
NJ_FOR_BINDING bool nj_refuse_forked(nj_error *error);

/* False if this process cannot use the driver: none is installed, it did not start, the process forked after it started, or a device in
 * use has a sticky error. Does not disturb a graph capture. */
NJ_FOR_BINDING bool nj_driver_healthy(void);

/* Returns a device and retains its primary context; NULL with `error` filled. */
NJ_FOR_BINDING nj_device *nj_device_ready(int ordinal, nj_error *error);

/* True if a call failed because the device was reset. A reset destroys the primary context, but not CUlibrary and CUkernel handles. */
static inline bool nj_is_lost(nj_outcome outcome)
{
    return outcome.code == CUDA_ERROR_CONTEXT_IS_DESTROYED || outcome.code == CUDA_ERROR_INVALID_CONTEXT;
}

/* Retains the primary context again after a reset, unless another thread has done so, that is, the epoch is no longer `epoch`. */
nj_outcome nj_device_renew(nj_device *device, unsigned int epoch);

/* A function that calls the driver in a device's context. */
typedef nj_outcome (*nj_work)(void *facts);

/* Runs `work`. If the device was reset, renews its primary context and runs `work` once more: libraries and kernels survive a reset,
 * but the context and the limits raised in it do not. */
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

/* Pushes the device's primary context, unless a context of the device is current. `nj_context_leave` pops it again. */
nj_outcome nj_context_enter(const nj_device *device, bool *pushed);
void nj_context_leave(bool pushed);

/* Returns the ordinal of the current context's device, or 0 if no context is current; -1 with `error` filled. */
NJ_FOR_BINDING int nj_current_device(nj_error *error);

#endif
