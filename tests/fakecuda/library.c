/* Libraries, kernels and functions: machine code is parsed, so that launches can be checked against it. */
#include "state.h"

#include <stdlib.h>
#include <string.h>

static struct fake_library *find_library(CUlibrary handle) {
    for (struct fake_library *library = fake.libraries; library; library = library->next)
        if (library == handle)
            return library;
    return NULL;
}

/* Index of `handle` in an array that starts at `base`, or -1 if it points into no element's start. */
static int element_of(const void *handle, const void *base, size_t size, int count) {
    uintptr_t distance = (uintptr_t)handle - (uintptr_t)base;
    return distance % size == 0 && distance / size < (uintptr_t)count ? (int)(distance / size) : -1;
}

struct fake_kernel *fake_find_kernel(const void *handle) {
    for (struct fake_library *library = fake.libraries; library; library = library->next) {
        int i = element_of(handle, library->kernel, sizeof *library->kernel, (int)library->cubin.kernels);
        if (i >= 0)
            return &library->kernel[i];
    }
    return NULL;
}

struct fake_function_handle *fake_find_function(const void *handle) {
    for (struct fake_library *library = fake.libraries; library; library = library->next) {
        struct fake_function_handle *first = &library->function[0][0];
        int i = element_of(handle, first, sizeof *first, CUBIN_KERNELS_MAX * FAKE_DEVICES_MAX);
        if (i >= 0 && first[i].kernel)
            return &first[i];
    }
    return NULL;
}

static CUresult load(struct fake_library *library, const void *code) {
    if (!cubin_read(code, &library->cubin))
        return CUDA_ERROR_INVALID_IMAGE;
    int fits = 0;
    for (int i = 0; i < fake.devices; i++)
        fits |= cubin_runs_on(&library->cubin, fake.capability[i]);
    if (!fits)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    for (unsigned i = 0; i < library->cubin.kernels; i++)
        library->kernel[i] = (struct fake_kernel){.library = library, .code = &library->cubin.kernel[i]};
    library->device = -1;
    library->next = fake.libraries;
    fake.libraries = library;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryLoadData(CUlibrary *out, const void *code, int *jit_options, void **jit_values,
                                  unsigned jit_count, int *options, void **values, unsigned option_count) {
    (void)jit_options, (void)jit_values, (void)options, (void)values, (void)option_count;
    ENTER(cuLibraryLoadData);
    if (!out || !code)
        LEAVE(cuLibraryLoadData, CUDA_ERROR_INVALID_VALUE);
    if (jit_count)
        LEAVE(cuLibraryLoadData, fake_violation(CUDA_ERROR_INVALID_VALUE, "library loaded with JIT options"));
    /* drivers before 12.3 could not load while a stream is captured */
    if (fake_capturing() && fake.driver_version < 12030)
        LEAVE(cuLibraryLoadData, fake_break_capture("cuLibraryLoadData"));
    struct fake_library *library = calloc(1, sizeof *library);
    if (!library)
        LEAVE(cuLibraryLoadData, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult code_of_load = load(library, code);
    if (code_of_load == CUDA_SUCCESS)
        *out = library;
    else
        free(library);
    LEAVE(cuLibraryLoadData, code_of_load);
}

/* The memory stays, so that a later use of a dead handle is told apart from garbage. */
EXPORT CUresult cuLibraryUnload(CUlibrary handle) {
    ENTER(cuLibraryUnload);
    struct fake_library *library = find_library(handle);
    if (!library)
        LEAVE(cuLibraryUnload, fake_violation(CUDA_ERROR_INVALID_HANDLE, "unload of what is no library"));
    if (library->dead)
        LEAVE(cuLibraryUnload, fake_violation(CUDA_ERROR_INVALID_HANDLE, "library unloaded twice"));
    if (fake_capturing())
        LEAVE(cuLibraryUnload, fake_break_capture("cuLibraryUnload"));
    library->dead = 1;
    LEAVE(cuLibraryUnload, CUDA_SUCCESS);
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary handle, const char *name) {
    ENTER(cuLibraryGetKernel);
    struct fake_library *library = find_library(handle);
    if (!library || library->dead)
        LEAVE(cuLibraryGetKernel, fake_violation(CUDA_ERROR_INVALID_HANDLE, "kernel asked of a dead library"));
    for (unsigned i = 0; i < library->cubin.kernels; i++)
        if (strcmp(library->cubin.kernel[i].symbol, name) == 0) {
            *kernel = &library->kernel[i];
            LEAVE(cuLibraryGetKernel, CUDA_SUCCESS);
        }
    LEAVE(cuLibraryGetKernel, CUDA_ERROR_NOT_FOUND);
}

/* Check that `handle` is a kernel of a loaded library. */
static struct fake_kernel *live_kernel(CUkernel handle, CUresult *code) {
    struct fake_kernel *kernel = fake_find_kernel(handle);
    *code = CUDA_SUCCESS;
    if (!kernel || kernel->library->dead)
        *code = fake_violation(CUDA_ERROR_INVALID_HANDLE, kernel ? "kernel used after its library was unloaded"
                                                                 : "a handle that is no kernel");
    return kernel;
}

static int runs_on(const struct fake_kernel *kernel, CUdevice device) {
    return cubin_runs_on(&kernel->library->cubin, fake.capability[device]);
}

EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel handle) {
    CUresult code;
    ENTER(cuKernelGetFunction);
    struct fake_kernel *kernel = live_kernel(handle, &code);
    struct fake_context *context = fake_current();
    if (code == CUDA_SUCCESS)
        code = context ? context->lost : CUDA_ERROR_INVALID_CONTEXT;
    if (code == CUDA_SUCCESS && !runs_on(kernel, context->device))
        code = CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (code != CUDA_SUCCESS)
        LEAVE(cuKernelGetFunction, code);
    int number = (int)(kernel - kernel->library->kernel);
    struct fake_function_handle *out = &kernel->library->function[number][context->device];
    *out = (struct fake_function_handle){kernel, context->device, context->epoch};
    *function = out;
    LEAVE(cuKernelGetFunction, CUDA_SUCCESS);
}

/* Modules, as Triton's own driver loads them: libraries whose kernels are functions of the current context. The calls that they
 * stand for are counted. */
EXPORT CUresult cuModuleLoadData(CUlibrary *out, const void *code) {
    return cuLibraryLoadData(out, code, NULL, NULL, 0, NULL, NULL, 0);
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUlibrary handle, const char *name) {
    CUkernel kernel;
    CUresult code = cuLibraryGetKernel(&kernel, handle, name);
    return code == CUDA_SUCCESS ? cuKernelGetFunction(function, kernel) : code;
}

EXPORT CUresult cuModuleUnload(CUlibrary handle) {
    return cuLibraryUnload(handle);
}

/* What Triton's driver is linked to, and these tests never need. */
EXPORT CUresult cuCtxSetLimit(int limit, size_t value) {
    (void)limit, (void)value;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetLimit(size_t *value, int limit) {
    (void)limit;
    *value = 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, int config) {
    (void)function, (void)config;
    return CUDA_SUCCESS;
}

EXPORT_RECENT CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *size) {
    CUresult code;
    ENTER(cuKernelGetParamInfo);
    struct fake_kernel *kernel = live_kernel(handle, &code);
    if (code == CUDA_SUCCESS && index >= kernel->code->params)
        code = CUDA_ERROR_INVALID_VALUE;
    if (code != CUDA_SUCCESS)
        LEAVE(cuKernelGetParamInfo, code);
    *offset = kernel->code->offsets[index];
    if (size)
        *size = kernel->code->sizes[index];
    LEAVE(cuKernelGetParamInfo, CUDA_SUCCESS);
}

struct fake_raised *fake_raised(struct fake_kernel *kernel, CUdevice device) {
    struct fake_raised *raised = &kernel->raised[device];
    if (raised->epoch != fake.context[device].epoch)
        *raised = (struct fake_raised){.epoch = fake.context[device].epoch};
    return raised;
}

static CUresult set_attribute(struct fake_kernel *kernel, CUdevice device, int attribute, int value) {
    if (!runs_on(kernel, device))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    int64_t limit = (int64_t)fake_shared_optin(fake.capability[device]) - kernel->code->static_shared;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || value > limit)
            return CUDA_ERROR_INVALID_VALUE;
        fake_raised(kernel, device)->shared_bytes = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        fake_raised(kernel, device)->non_portable_cluster = value;
        return value == 0 || value == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100)
            return CUDA_ERROR_INVALID_VALUE;
        fake_raised(kernel, device)->carveout = value + 1;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return value >= 0 && value <= 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return fake_violation(CUDA_ERROR_INVALID_VALUE, "function attribute %d cannot be set", attribute);
    }
}

static CUresult get_attribute(struct fake_kernel *kernel, CUdevice device, int attribute, int *value) {
    if (!runs_on(kernel, device))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    int raised = fake_raised(kernel, device)->shared_bytes;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        *value = raised ? raised : (48 << 10) - (int)kernel->code->static_shared;
    else if (attribute == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        *value = (int)kernel->code->static_shared;
    else if (attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
        *value = kernel->code->reqntid[0] ? (int)kernel->code->reqntid[0] : 1024;
    else if (attribute >= 0 && attribute < CU_FUNC_ATTRIBUTE_MAX)
        *value = 0;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelSetAttribute(int attribute, int value, CUkernel handle, CUdevice device) {
    CUresult code;
    ENTER(cuKernelSetAttribute);
    struct fake_kernel *kernel = live_kernel(handle, &code);
    if (code == CUDA_SUCCESS && (device < 0 || device >= fake.devices))
        code = CUDA_ERROR_INVALID_DEVICE;
    LEAVE(cuKernelSetAttribute, code ? code : set_attribute(kernel, device, attribute, value));
}

EXPORT CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel handle, CUdevice device) {
    CUresult code;
    ENTER(cuKernelGetAttribute);
    struct fake_kernel *kernel = live_kernel(handle, &code);
    if (code == CUDA_SUCCESS && (device < 0 || device >= fake.devices))
        code = CUDA_ERROR_INVALID_DEVICE;
    LEAVE(cuKernelGetAttribute, code ? code : get_attribute(kernel, device, attribute, value));
}

/* Check that `handle` is a function of a live kernel in a context that was not reset since. */
static struct fake_function_handle *live_function(CUfunction handle, CUresult *code) {
    struct fake_function_handle *function = fake_find_function(handle);
    *code = CUDA_SUCCESS;
    if (!function || function->kernel->library->dead || function->epoch != fake.context[function->device].epoch)
        *code = CUDA_ERROR_INVALID_HANDLE;
    return function;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction handle, int attribute, int value) {
    CUresult code;
    ENTER(cuFuncSetAttribute);
    struct fake_function_handle *function = live_function(handle, &code);
    LEAVE(cuFuncSetAttribute, code ? code : set_attribute(function->kernel, function->device, attribute, value));
}

EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction handle) {
    CUresult code;
    ENTER(cuFuncGetAttribute);
    struct fake_function_handle *function = live_function(handle, &code);
    LEAVE(cuFuncGetAttribute, code ? code : get_attribute(function->kernel, function->device, attribute, value));
}

/* --- control --- */

EXPORT int fake_live_libraries(void) {
    int live = 0;
    for (struct fake_library *library = fake.libraries; library; library = library->next)
        live += !library->dead;
    return live;
}
