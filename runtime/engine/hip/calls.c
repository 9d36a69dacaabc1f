/* Implements the calls of CUDA's driver API with AMD's HIP runtime, `libamdhip64`. Error codes, streams and most functions agree with
 * CUDA's by design; where HIP differs, a function of this file adapts it. Names and numbers are those of hip_runtime_api.h, HIP 6.0 to 7.
 *
 * HIP deprecates contexts and gives each thread a current device instead. So a CUcontext here is the device's ordinal plus one. */
#include "driver/driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum {
    hipErrorNoBinaryForGpu = 209,
    hipErrorNotSupported = 801,
    hipDeviceAttributeMultiprocessorCount = 63,
    PROPERTIES_BYTES = 4096, /* hipDeviceProp_tR0600 has 1,472 */
    GCN_ARCH_NAME = 1160,    /* offset of its gcnArchName */
    GCN_ARCH_NAME_BYTES = 256,
};

typedef struct hipModule *hipModule_t;

/* Each entry: the name and the parameters. */
#define HIP_CALLS(X)                                                                                                   \
    X(hipInit, (unsigned int flags))                                                                                   \
    X(hipDriverGetVersion, (int *version))                                                                             \
    X(hipDrvGetErrorName, (int error, const char **name))                                                              \
    X(hipGetDeviceCount, (int *count))                                                                                 \
    X(hipDeviceGet, (int *device, int ordinal))                                                                        \
    X(hipDeviceGetAttribute, (int *value, int attribute, int device))                                                  \
    X(hipDeviceGetName, (char *name, int space, int device))                                                           \
    X(hipDeviceTotalMem, (size_t * bytes, int device))                                                                 \
    X(hipGetDevicePropertiesR0600, (void *properties, int device))                                                     \
    X(hipGetDevice, (int *device))                                                                                     \
    X(hipSetDevice, (int device))                                                                                      \
    X(hipPointerGetAttribute, (void *value, int attribute, uint64_t address))                                          \
    X(hipModuleLoadData, (hipModule_t * module, const void *code))                                                     \
    X(hipModuleGetFunction, (CUfunction * function, hipModule_t module, const char *name))                             \
    X(hipModuleLaunchKernel,                                                                                           \
      (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,       \
       unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params,          \
       void **extra))                                                                                                  \
    X(hipModuleLaunchCooperativeKernel,                                                                                \
      (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,       \
       unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params))         \
    X(hipMallocAsync, (uint64_t * address, size_t bytes, CUstream stream))                                             \
    X(hipFreeAsync, (uint64_t address, CUstream stream))                                                               \
    X(hipMemGetInfo, (size_t * free_bytes, size_t * total_bytes))

/* The functions of the HIP runtime; filled once, together with `nj_calls`. */
static struct {
#define DECLARE(name, parameters) int(*name) parameters;
    HIP_CALLS(DECLARE)
#undef DECLARE
} hip;

/* The device that was current before this thread's last push. */
static _Thread_local int before;

static CUcontext context_of(int device)
{
    return (CUcontext)(uintptr_t)(device + 1);
}

/* Converts a version to the form of `cuDriverGetVersion`: 6040 for ROCm 6.4. HIP returns major * 10,000,000 + minor * 100,000 + patch. */
static int get_version(int *version)
{
    int raw = 0, code = hip.hipDriverGetVersion(&raw);
    *version = raw / 10000000 * 1000 + raw % 10000000 / 100000 * 10;
    return code;
}

static int get_attribute(int *value, int attribute, int device)
{
    return attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
               ? hip.hipDeviceGetAttribute(value, hipDeviceAttributeMultiprocessorCount, device)
               : CUDA_ERROR_INVALID_VALUE;
}

static int retain(CUcontext *context, int device)
{
    *context = context_of(device);
    return CUDA_SUCCESS;
}

static int release(int device)
{
    (void)device;
    return CUDA_SUCCESS;
}

static int get_current(CUcontext *context)
{
    int device = 0, code = hip.hipGetDevice(&device);
    *context = context_of(device);
    return code;
}

static int push(CUcontext context)
{
    int code = hip.hipGetDevice(&before);
    return code == CUDA_SUCCESS ? hip.hipSetDevice((int)(uintptr_t)context - 1) : code;
}

static int pop(CUcontext *context)
{
    *context = context_of(before);
    return hip.hipSetDevice(before);
}

static int load(CUlibrary *library, const void *code, int *jit_options, void **jit_values, unsigned int jit_count, int *options,
                void **values, unsigned int count)
{
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return hip.hipModuleLoadData((hipModule_t *)library, code);
}

static int get_kernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    return hip.hipModuleGetFunction((CUfunction *)kernel, (hipModule_t)library, name);
}

/* In HIP a kernel's handle is its function, because hipModuleLoadData has put the module on its device. */
static int get_function(CUfunction *function, CUkernel kernel)
{
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

static int launch_with(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    (void)extra;
    if (config->numAttrs != 1 || config->attrs->id != CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
        return hipErrorNotSupported;
    }
    return hip.hipModuleLaunchCooperativeKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                                                config->blockDimY, config->blockDimZ, config->sharedMemBytes, config->hStream, params);
}

static const char *find_symbols(void *library)
{
#define FIND(name, parameters)                                                                                         \
    *(void **)&hip.name = dlsym(library, #name);                                                                       \
    if (hip.name == NULL) {                                                                                            \
        return #name;                                                                                                  \
    }
    HIP_CALLS(FIND)
#undef FIND
    return NULL;
}

static const char *find(void *library)
{
    const char *missing = find_symbols(library);
    if (missing != NULL) {
        return missing;
    }
    nj_calls = (nj_driver_calls){
        .cuInit = hip.hipInit,
        .cuDriverGetVersion = get_version,
        .cuGetErrorName = hip.hipDrvGetErrorName,
        .cuDeviceGetCount = hip.hipGetDeviceCount,
        .cuDeviceGet = hip.hipDeviceGet,
        .cuDeviceGetAttribute = get_attribute,
        .cuDeviceGetName = hip.hipDeviceGetName,
        .cuDeviceTotalMem = hip.hipDeviceTotalMem,
        .cuDevicePrimaryCtxRetain = retain,
        .cuDevicePrimaryCtxRelease = release,
        .cuCtxGetCurrent = get_current,
        .cuCtxGetDevice = hip.hipGetDevice,
        .cuCtxPushCurrent = push,
        .cuCtxPopCurrent = pop,
        .cuPointerGetAttribute = hip.hipPointerGetAttribute,
        .cuLibraryLoadData = load,
        .cuLibraryGetKernel = get_kernel,
        .cuKernelGetFunction = get_function,
        .cuMemAllocAsync = hip.hipMallocAsync,
        .cuMemFreeAsync = hip.hipFreeAsync,
        .cuMemGetInfo = hip.hipMemGetInfo,
        .cuLaunchKernel = hip.hipModuleLaunchKernel,
        .cuLaunchKernelEx = launch_with,
    };
    return NULL;
}

/* Reads the number of an arch such as `gfx942:sramecc+:xnack-`. Archs with a letter, such as gfx90a, have none; nojit does not build
 * for them. */
static CUresult arch(int *number, nj_text *unknown, CUdevice device)
{
    char *properties = calloc(1, PROPERTIES_BYTES), *end = properties;
    *number = 0;
    unknown->text[0] = '\0';
    if (properties == NULL) {
        return 2; /* hipErrorOutOfMemory */
    }
    CUresult code = hip.hipGetDevicePropertiesR0600(properties, device);
    const char *name = properties + GCN_ARCH_NAME;
    long digits = code == CUDA_SUCCESS && memcmp(name, "gfx", 3) == 0 ? strtol(name + 3, &end, 10) : 0;
    bool known = digits >= 900 && digits <= 9999 && (*end == ':' || *end == '\0');
    *number = known ? (int)digits : 0;
    if (code == CUDA_SUCCESS && !known) {
        *unknown = nj_format("%.*s", GCN_ARCH_NAME_BYTES - 1, name[0] == '\0' ? "nameless" : name);
    }
    free(properties);
    return code != CUDA_SUCCESS || known ? code : hipErrorNoBinaryForGpu;
}

static const char *spell(const char *call)
{
    static const char *const names[][2] = {
        {"cuInit", "hipInit"},
        {"cuDriverGetVersion", "hipDriverGetVersion"},
        {"cuDeviceGetCount", "hipGetDeviceCount"},
        {"cuDeviceGet", "hipDeviceGet"},
        {"cuDeviceGetAttribute", "hipGetDeviceProperties"},
        {"cuDeviceGetName", "hipDeviceGetName"},
        {"cuDeviceTotalMem", "hipDeviceTotalMem"},
        {"cuCtxGetCurrent", "hipGetDevice"},
        {"cuCtxGetDevice", "hipGetDevice"},
        {"cuCtxPushCurrent", "hipSetDevice"},
        {"cuPointerGetAttribute", "hipPointerGetAttribute"},
        {"cuLibraryLoadData", "hipModuleLoadData"},
        {"cuLibraryGetKernel", "hipModuleGetFunction"},
        {"cuMemAllocAsync", "hipMallocAsync"},
        {"cuMemFreeAsync", "hipFreeAsync"},
        {"cuMemGetInfo", "hipMemGetInfo"},
        {"cuLaunchKernel", "hipModuleLaunchKernel"},
        {"cuLaunchKernelEx", "hipModuleLaunchCooperativeKernel"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i][0], call) == 0) {
            return names[i][1];
        }
    }
    return call;
}

const nj_vendor nj_vendor_hip = {
    .name = "HIP",
    .release = "ROCm",
    .variable = "NOJIT_LIBHIP",
    .files = {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"},
    .needed = "AMD's HIP runtime 6.0 or later (libamdhip64.so)",
    .dlpack_device = 10, /* kDLROCM */
    .per_device = true,
    .lazy = true,
    .too_old = hipErrorNoBinaryForGpu,
    .too_old_name = "hipErrorNoBinaryForGpu",
    .not_initialized_name = "hipErrorNotInitialized",
    .find = find,
    .arch = arch,
    .spell = spell,
};
