/* The part of DLPack 1 that reads tensors without Python calls: the C exchange API. Names are dlpack.h's. */
#ifndef NOJIT_DLPACK_EXCHANGE_H
#define NOJIT_DLPACK_EXCHANGE_H

#include <stdint.h>

enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLROCM = 10, kDLROCMHost = 11, kDLCUDAManaged = 13 };

/* True for the device types of GPUs, NVIDIA's and AMD's. */
static inline int py_is_gpu(int32_t device_type)
{
    return device_type == kDLCUDA || device_type == kDLROCM;
}

typedef struct {
    int32_t device_type;
    int32_t device_id;
} DLDevice;

typedef struct {
    uint8_t code; /* a DLDataTypeCode: base/dlpack.h */
    uint8_t bits;
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct {
    uint32_t major;
    uint32_t minor;
} DLPackVersion;

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

typedef struct DLPackExchangeAPIHeader {
    DLPackVersion version;
    struct DLPackExchangeAPIHeader *prev_api;
} DLPackExchangeAPIHeader;

/* Functions return 0, or -1: the first through `set_error`, the others with a Python exception set. */
typedef struct {
    DLPackExchangeAPIHeader header;
    int (*managed_tensor_allocator)(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_context,
                                    void (*set_error)(void *error_context, const char *kind, const char *message));
    int (*managed_tensor_from_py_object_no_sync)(void *object, DLManagedTensorVersioned **out);
    int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned *tensor, void **out);
    int (*dltensor_from_py_object_no_sync)(void *object, DLTensor *out); /* may be NULL */
    int (*current_work_stream)(int32_t device_type, int32_t device_id, void **out);
} DLPackExchangeAPI;

#endif
