/* Names of errors, look-up of entry points, and traps where the real library exports a function of an older ABI. */
#include "state.h"

#include <string.h>

enum { GET_PROC_SUCCESS = 0, GET_PROC_NOT_FOUND = 1 };

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {300, "CUDA_ERROR_INVALID_SOURCE", "device kernel image is invalid"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "operation not supported on global/shared address space"},
    {718, "CUDA_ERROR_INVALID_PC", "invalid program counter"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "cluster misconfiguration"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int find_error(CUresult code) {
    for (int i = 0; i < (int)(sizeof errors / sizeof *errors); i++)
        if (errors[i].code == code)
            return i;
    return -1;
}

EXPORT CUresult cuGetErrorName(CUresult code, const char **name) {
    ENTER(cuGetErrorName);
    int i = find_error(code);
    *name = i < 0 ? NULL : errors[i].name;
    LEAVE(cuGetErrorName, i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

EXPORT CUresult cuGetErrorString(CUresult code, const char **text) {
    ENTER(cuGetErrorString);
    int i = find_error(code);
    *text = i < 0 ? NULL : errors[i].text;
    LEAVE(cuGetErrorString, i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

/* any declaration will do: only the address is taken */
#define X(name) extern void fake_address_of_##name(void) __asm__(#name);
FAKE_FUNCTIONS(X)
#undef X

static const struct {
    const char *name;
    void (*function)(void);
} entries[] = {
#define X(name) {#name, fake_address_of_##name},
    FAKE_FUNCTIONS(X)
#undef X
};

/* `asked` names `entry` if they are equal but for the entry's version suffix. */
static int is_named(const char *entry, const char *asked) {
    size_t length = strlen(asked);
    return strncmp(entry, asked, length) == 0 &&
           (entry[length] == 0 || (entry[length] == '_' && entry[length + 1] == 'v'));
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status) {
    (void)version, (void)flags;
    ENTER(cuGetProcAddress_v2);
    *out = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof *entries && !*out; i++)
        if (is_named(entries[i].name, symbol))
            memcpy(out, &entries[i].function, sizeof *out);
    if (status)
        *status = *out ? GET_PROC_SUCCESS : GET_PROC_NOT_FOUND;
    LEAVE(cuGetProcAddress_v2, *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

/* The real library exports these too, with 32-bit sizes or other meanings: who resolves them by plain name is wrong. */
#define TRAP(name) \
    EXPORT CUresult name(void) { return fake_trap(#name); }
TRAP(cuMemAlloc)
TRAP(cuMemFree)
TRAP(cuMemcpyHtoD)
TRAP(cuMemcpyDtoH)
TRAP(cuMemsetD8)
TRAP(cuDeviceTotalMem)
TRAP(cuCtxPushCurrent)
TRAP(cuCtxPopCurrent)
TRAP(cuStreamDestroy)
TRAP(cuStreamBeginCapture)
TRAP(cuGetProcAddress)
TRAP(cuDevicePrimaryCtxRelease)
TRAP(cuDevicePrimaryCtxReset)
