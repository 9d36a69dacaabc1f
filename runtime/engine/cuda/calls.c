/* NVIDIA's driver: looks up each call by its symbol. */
#include "driver/driver.h"

#include <dlfcn.h>

static const char *find(void *library)
{
#define NJ_FIND(name, symbol, parameters, required)                                                                    \
    *(void **)&nj_calls.name = dlsym(library, symbol);                                                                 \
    if (required && nj_calls.name == NULL) {                                                                           \
        return symbol;                                                                                                 \
    }
    NJ_DRIVER_CALLS(NJ_FIND)
#undef NJ_FIND
    return NULL;
}

static CUresult arch(int *number, nj_text *name, CUdevice device)
{
    name->text[0] = '\0';
    int major = 0, minor = 0;
    CUresult code = nj_calls.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    if (code == CUDA_SUCCESS) {
        code = nj_calls.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    }
    *number = code == CUDA_SUCCESS ? 10 * major + minor : 0;
    return code;
}

static const char *spell(const char *call)
{
    return call;
}

const nj_vendor nj_vendor_cuda = {
    .name = "CUDA",
    .release = "CUDA",
    .variable = "NOJIT_LIBCUDA",
    .files = {"libcuda.so.1"},
    .needed = "a CUDA driver of version 12.0 or later (libcuda.so.1)",
    .dlpack_device = 2, /* kDLCUDA */
    .too_old = 222,
    .too_old_name = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    .not_initialized_name = "CUDA_ERROR_NOT_INITIALIZED",
    .find = find,
    .arch = arch,
    .spell = spell,
};
