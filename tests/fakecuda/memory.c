/* Streams, captures and memory. Device addresses are never host addresses: following one on the host faults. */
#include "state.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN_BYTES = 512 };

struct fake_stream *fake_find_stream(CUstream handle) {
    for (struct fake_stream *stream = fake.streams; stream; stream = stream->next)
        if (stream == handle && !stream->dead)
            return stream;
    return NULL;
}

struct fake_block *fake_find_block(CUdeviceptr address) {
    for (struct fake_block *block = fake.blocks; block; block = block->next)
        if (address >= block->address && address - block->address < block->bytes)
            return block;
    return NULL;
}

int fake_capturing(void) {
    for (struct fake_stream *stream = fake.streams; stream; stream = stream->next)
        if (stream->capture == CU_STREAM_CAPTURE_STATUS_ACTIVE)
            return 1;
    return 0;
}

CUresult fake_break_capture(const char *call) {
    for (struct fake_stream *stream = fake.streams; stream; stream = stream->next)
        if (stream->capture == CU_STREAM_CAPTURE_STATUS_ACTIVE)
            stream->capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return fake_violation(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s while a stream is captured", call);
}

/* --- streams --- */

static struct fake_stream *new_stream(CUdevice device, unsigned flags) {
    struct fake_stream *stream = calloc(1, sizeof *stream);
    if (stream) {
        *stream = (struct fake_stream){.next = fake.streams, .device = device, .flags = flags};
        fake.streams = stream;
    }
    return stream;
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned flags) {
    ENTER(cuStreamCreate);
    struct fake_context *context = fake_current();
    if (!context)
        LEAVE(cuStreamCreate, CUDA_ERROR_INVALID_CONTEXT);
    *out = new_stream(context->device, flags);
    LEAVE(cuStreamCreate, *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream handle) {
    ENTER(cuStreamDestroy_v2);
    struct fake_stream *stream = fake_find_stream(handle);
    if (!stream)
        LEAVE(cuStreamDestroy_v2, fake_violation(CUDA_ERROR_INVALID_HANDLE, "stream destroyed twice"));
    if (stream->capture)
        LEAVE(cuStreamDestroy_v2, fake_break_capture("cuStreamDestroy"));
    stream->dead = 1;
    LEAVE(cuStreamDestroy_v2, CUDA_SUCCESS);
}

/* The legacy and per-thread streams (0, 1, 2) always exist. */
static int is_stream(CUstream handle) { return (uintptr_t)handle <= 2 || fake_find_stream(handle); }

EXPORT CUresult cuStreamSynchronize(CUstream handle) {
    ENTER(cuStreamSynchronize);
    if (!is_stream(handle))
        LEAVE(cuStreamSynchronize, CUDA_ERROR_INVALID_HANDLE);
    struct fake_stream *stream = fake_find_stream(handle);
    if (stream && stream->capture)
        LEAVE(cuStreamSynchronize, fake_break_capture("cuStreamSynchronize"));
    LEAVE(cuStreamSynchronize, CUDA_SUCCESS);
}

EXPORT CUresult cuStreamIsCapturing(CUstream handle, int *status) {
    ENTER(cuStreamIsCapturing);
    if (!is_stream(handle))
        LEAVE(cuStreamIsCapturing, CUDA_ERROR_INVALID_HANDLE);
    struct fake_stream *stream = fake_find_stream(handle);
    *status = stream ? stream->capture : CU_STREAM_CAPTURE_STATUS_NONE;
    LEAVE(cuStreamIsCapturing, CUDA_SUCCESS);
}

EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
    ENTER(cuStreamGetCtx);
    struct fake_stream *stream = fake_find_stream(handle);
    if (!is_stream(handle))
        LEAVE(cuStreamGetCtx, CUDA_ERROR_INVALID_HANDLE);
    *context = stream ? &fake.context[stream->device] : fake_current();
    LEAVE(cuStreamGetCtx, *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}

/* Stands for every graph. */
static char graph_handle;

EXPORT CUresult cuStreamBeginCapture_v2(CUstream handle, int mode) {
    (void)mode;
    ENTER(cuStreamBeginCapture_v2);
    struct fake_stream *stream = fake_find_stream(handle);
    if (!stream || stream->capture)
        LEAVE(cuStreamBeginCapture_v2, CUDA_ERROR_ILLEGAL_STATE_OF_CAPTURE);
    stream->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    LEAVE(cuStreamBeginCapture_v2, CUDA_SUCCESS);
}

EXPORT CUresult cuStreamEndCapture(CUstream handle, void **graph) {
    ENTER(cuStreamEndCapture);
    struct fake_stream *stream = fake_find_stream(handle);
    if (!stream || !stream->capture)
        LEAVE(cuStreamEndCapture, CUDA_ERROR_ILLEGAL_STATE_OF_CAPTURE);
    int whole = stream->capture == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    stream->capture = CU_STREAM_CAPTURE_STATUS_NONE;
    *graph = whole ? &graph_handle : NULL;
    LEAVE(cuStreamEndCapture, whole ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* Graphs hold nothing: what was captured is recorded as it is launched, and a replay launches nothing. */

EXPORT CUresult cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags) {
    ENTER(cuGraphInstantiateWithFlags);
    *made = graph;
    LEAVE(cuGraphInstantiateWithFlags, graph == &graph_handle && flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuGraphLaunch(void *made, CUstream stream) {
    ENTER(cuGraphLaunch);
    LEAVE(cuGraphLaunch, made == &graph_handle && fake_find_stream(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuGraphExecDestroy(void *made) {
    ENTER(cuGraphExecDestroy);
    LEAVE(cuGraphExecDestroy, made == &graph_handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuGraphDestroy(void *graph) {
    ENTER(cuGraphDestroy);
    LEAVE(cuGraphDestroy, graph == &graph_handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

/* --- memory --- */

static CUresult allocate(CUdeviceptr *out, size_t bytes) {
    struct fake_context *context = fake_current();
    if (!context || context->lost)
        return context ? context->lost : CUDA_ERROR_INVALID_CONTEXT;
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct fake_block *block = malloc(sizeof *block);
    unsigned char *content = calloc(1, bytes);
    if (!block || !content) {
        free(block);
        free(content);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUdeviceptr address = fake.next_address[context->device];
    fake.next_address[context->device] += (bytes + ALIGN_BYTES) / ALIGN_BYTES * ALIGN_BYTES;
    *block = (struct fake_block){fake.blocks, address, bytes, context->device, content, 0};
    fake.blocks = block;
    *out = address;
    return CUDA_SUCCESS;
}

static CUresult release(CUdeviceptr address) {
    for (struct fake_block **link = &fake.blocks; *link; link = &(*link)->next) {
        struct fake_block *block = *link;
        if (block->address != address)
            continue;
        *link = block->next;
        free(block->content);
        free(block);
        return CUDA_SUCCESS;
    }
    if (address == 0)
        return CUDA_SUCCESS;
    return fake_violation(CUDA_ERROR_INVALID_VALUE, "free of %#llx, which is not allocated", (unsigned long long)address);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    ENTER(cuMemAlloc_v2);
    LEAVE(cuMemAlloc_v2, fake_capturing() ? fake_break_capture("cuMemAlloc") : allocate(out, bytes));
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    ENTER(cuMemFree_v2);
    LEAVE(cuMemFree_v2, fake_capturing() ? fake_break_capture("cuMemFree") : release(address));
}

/* The driver would make a graph node of these; the runtime must not: scratch belongs to the framework's allocator. */
static int captured(CUstream handle) {
    struct fake_stream *stream = fake_find_stream(handle);
    return stream && stream->capture;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream) {
    ENTER(cuMemAllocAsync);
    LEAVE(cuMemAllocAsync, captured(stream) ? fake_break_capture("cuMemAllocAsync") : allocate(out, bytes));
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    ENTER(cuMemFreeAsync);
    LEAVE(cuMemFreeAsync, captured(stream) ? fake_break_capture("cuMemFreeAsync") : release(address));
}

/* The host bytes behind [address, address + bytes), or NULL if they are not all of one allocation. */
static unsigned char *content_of(CUdeviceptr address, size_t bytes) {
    struct fake_block *block = fake_find_block(address);
    if (!block || !block->content || bytes > block->bytes - (address - block->address))
        return NULL;
    return block->content + (address - block->address);
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    ENTER(cuMemcpyHtoD_v2);
    if (fake_capturing())
        LEAVE(cuMemcpyHtoD_v2, fake_break_capture("cuMemcpyHtoD"));
    unsigned char *content = content_of(to, bytes);
    if (content)
        memcpy(content, from, bytes);
    LEAVE(cuMemcpyHtoD_v2, content ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    ENTER(cuMemcpyDtoH_v2);
    if (fake_capturing())
        LEAVE(cuMemcpyDtoH_v2, fake_break_capture("cuMemcpyDtoH"));
    unsigned char *content = content_of(from, bytes);
    if (content)
        memcpy(to, content, bytes);
    LEAVE(cuMemcpyDtoH_v2, content ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes) {
    ENTER(cuMemsetD8_v2);
    if (fake_capturing())
        LEAVE(cuMemsetD8_v2, fake_break_capture("cuMemsetD8"));
    unsigned char *content = content_of(to, bytes);
    if (content)
        memset(content, value, bytes);
    LEAVE(cuMemsetD8_v2, content ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult pointer_attribute(void *out, int attribute, const struct fake_block *block, CUdeviceptr address) {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)out = &fake.context[block->device];
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)out = block->view ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        /* stricter than drivers: a device's view of memory is asked for in its context */
        if (!fake_current() || fake_current()->lost)
            return fake_current() ? fake_current()->lost : CUDA_ERROR_INVALID_CONTEXT;
        *(CUdeviceptr *)out = block->view ? block->view + (address - block->address) : address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)out = block->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)out = block->address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)out = block->bytes;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

EXPORT CUresult cuPointerGetAttribute(void *out, int attribute, CUdeviceptr address) {
    ENTER(cuPointerGetAttribute);
    struct fake_block *block = fake_find_block(address);
    LEAVE(cuPointerGetAttribute,
          block ? pointer_attribute(out, attribute, block, address) : CUDA_ERROR_INVALID_VALUE);
}

/* Unlike the singular, succeeds for an unknown pointer and leaves zeros: a device ordinal of -2. */
EXPORT CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **out, CUdeviceptr address) {
    ENTER(cuPointerGetAttributes);
    struct fake_block *block = fake_find_block(address);
    CUresult code = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && code == CUDA_SUCCESS; i++) {
        if (block)
            code = pointer_attribute(out[i], attributes[i], block, address);
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)out[i] = -2;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *(unsigned *)out[i] = 0;
        else
            *(uint64_t *)out[i] = 0;
    }
    LEAVE(cuPointerGetAttributes, code);
}

/* --- control --- */

EXPORT CUstream fake_stream_create(CUdevice device, unsigned flags) { return new_stream(device, flags); }

EXPORT int fake_stream_capture(CUstream handle, int status) {
    struct fake_stream *stream = fake_find_stream(handle);
    if (stream)
        stream->capture = status;
    return stream ? 0 : -1;
}

EXPORT int fake_stream_status(CUstream handle) {
    struct fake_stream *stream = fake_find_stream(handle);
    return stream ? stream->capture : -1;
}

/* Make the driver know memory at an address of the test's choice; it has no content. */
EXPORT void fake_add_memory(CUdeviceptr address, size_t bytes, CUdevice device) {
    struct fake_block *block = malloc(sizeof *block);
    if (!block)
        abort();
    *block = (struct fake_block){fake.blocks, address, bytes, device, NULL, 0};
    fake.blocks = block;
}

/* Make the driver know pinned host memory, which devices reach at another address. */
EXPORT void fake_pin_memory(CUdeviceptr address, size_t bytes, CUdeviceptr view) {
    fake_add_memory(address, bytes, 0);
    fake.blocks->view = view;
}

/* Forget all pinned host memory. */
EXPORT void fake_unpin_memory(void) {
    struct fake_block **link = &fake.blocks;
    while (*link) {
        struct fake_block *block = *link;
        if (block->view) {
            *link = block->next;
            free(block);
        } else {
            link = &block->next;
        }
    }
}

EXPORT int fake_live_blocks(void) {
    int live = 0;
    for (struct fake_block *block = fake.blocks; block; block = block->next)
        live++;
    return live;
}
