/* The arguments of a launch: every byte that the image has a param for is read, and what can be told of it checked. */
#include "state.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static fake_watch *watch;

/* How many bytes of `count` spans of this process can be read, in order; all of them where the kernel will not say. */
static size_t readable_bytes(const struct iovec *spans, unsigned count, size_t total) {
    unsigned char sink[FAKE_PARAM_BYTES_MAX];
    struct iovec into = {sink, total};
    ssize_t bytes = process_vm_readv(getpid(), &into, 1, spans, count, 0);
    if (bytes < 0)
        return errno == EFAULT ? 0 : total;
    return (size_t)bytes;
}

/* The first argument that cannot be read in full, or the count of params. */
static unsigned first_unreadable(const struct cubin_kernel *code, void **params) {
    struct iovec spans[CUBIN_PARAMS_MAX];
    size_t total = 0;
    unsigned i = 0;
    for (; i < code->params && params[i]; i++) {
        spans[i] = (struct iovec){params[i], code->sizes[i]};
        total += code->sizes[i];
    }
    size_t good = readable_bytes(spans, i, total);
    if (good == total)
        return i;
    for (i = 0; good >= code->sizes[i]; i++)
        good -= code->sizes[i];
    return i;
}

/* Copy the arguments out of an array of pointers, one for each param: as many as the image has, each in full. */
static CUresult read_pointers(const struct cubin_kernel *code, void **params, struct fake_launch_record *record) {
    struct iovec array = {params, code->params * sizeof *params};
    if (readable_bytes(&array, 1, array.iov_len) != array.iov_len)
        return fake_violation(CUDA_ERROR_INVALID_VALUE, "%s: an array of less than %u arguments", code->symbol,
                              code->params);
    unsigned bad = first_unreadable(code, params);
    if (bad < code->params)
        return fake_violation(CUDA_ERROR_INVALID_VALUE, "%s: argument %u is %s", code->symbol, bad,
                              params[bad] ? "not readable" : "a null pointer");
    /* again, so that a sanitizer sees it */
    for (unsigned i = 0; i < code->params; i++)
        memcpy(record->bytes + code->offsets[i], params[i], code->sizes[i]);
    return CUDA_SUCCESS;
}

/* Copy the arguments out of one packed buffer, as CU_LAUNCH_PARAM_BUFFER_* describe it. */
static CUresult read_buffer(const struct cubin_kernel *code, void **extra, struct fake_launch_record *record) {
    const void *buffer = NULL;
    size_t size = 0;
    for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = *(size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (!buffer || size != record->param_bytes)
        return fake_violation(CUDA_ERROR_INVALID_VALUE, "%s: a buffer of %zu bytes, image needs %u", code->symbol,
                              size, record->param_bytes);
    memcpy(record->bytes, buffer, size);
    return CUDA_SUCCESS;
}

/* The driver would launch all the same, so this refuses nothing: the violation is what counts. */
static void check_address(const struct fake_request *request, unsigned argument, CUdeviceptr address) {
    uint64_t stream = (uint64_t)(uintptr_t)request->config->hStream;
    const char *problem = watch ? watch(address, request->device, stream) : NULL;
    if (problem)
        fake_violation(CUDA_SUCCESS, "%s: argument %u, %#llx, is %s", request->kernel->code->symbol, argument,
                       (unsigned long long)address, problem);
}

/* Eight bytes may be an address; 128 are a tensor map, since nothing else of Triton's is so large. */
static CUresult check_values(const struct fake_request *request, const struct fake_launch_record *record) {
    const struct cubin_kernel *code = request->kernel->code;
    for (unsigned i = 0; i < code->params; i++) {
        const unsigned char *value = record->bytes + code->offsets[i];
        CUdeviceptr address = 0;
        if (code->sizes[i] == FAKE_TENSOR_MAP_BYTES) {
            const char *problem = fake_check_tensor_map(value, &address);
            if (problem)
                return fake_violation(CUDA_ERROR_INVALID_VALUE, "%s: argument %u is %s", code->symbol, i, problem);
        } else if (code->sizes[i] == sizeof address) {
            memcpy(&address, value, sizeof address);
        }
        check_address(request, i, address);
    }
    return CUDA_SUCCESS;
}

CUresult fake_read_params(const struct fake_request *request, struct fake_launch_record *record) {
    const struct cubin_kernel *code = request->kernel->code;
    record->params = code->params;
    record->param_bytes = 0;
    if (code->params) {
        unsigned last = code->params - 1;
        record->param_bytes = (uint32_t)code->offsets[last] + code->sizes[last];
    }
    if (record->param_bytes > FAKE_PARAM_BYTES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(record->offsets, code->offsets, sizeof *code->offsets * code->params);
    memcpy(record->sizes, code->sizes, sizeof *code->sizes * code->params);
    if (!request->extra && code->params && !request->params)
        return fake_violation(CUDA_ERROR_INVALID_VALUE, "%s: launched without arguments", code->symbol);
    CUresult read = request->extra  ? read_buffer(code, request->extra, record)
                    : code->params ? read_pointers(code, request->params, record)
                                   : CUDA_SUCCESS;
    return read ? read : check_values(request, record);
}

/* --- control --- */

/* Ask `function` about every address that a launch is handed; see fake_watch. NULL ends it. */
EXPORT void fake_watch_memory(fake_watch *function) { watch = function; }
