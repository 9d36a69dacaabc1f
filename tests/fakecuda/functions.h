/* Every driver function that the fake counts, by the name that it is exported under. */
#ifndef FAKECUDA_FUNCTIONS_H
#define FAKECUDA_FUNCTIONS_H

#define FAKE_FUNCTIONS(X)            \
    X(cuInit)                        \
    X(cuDriverGetVersion)            \
    X(cuGetErrorName)                \
    X(cuGetErrorString)              \
    X(cuGetProcAddress_v2)           \
    X(cuDeviceGetCount)              \
    X(cuDeviceGet)                   \
    X(cuDeviceGetAttribute)          \
    X(cuDeviceGetName)               \
    X(cuDeviceTotalMem_v2)           \
    X(cuDevicePrimaryCtxRetain)      \
    X(cuDevicePrimaryCtxRelease_v2)  \
    X(cuDevicePrimaryCtxReset_v2)    \
    X(cuDevicePrimaryCtxGetState)    \
    X(cuCtxGetCurrent)               \
    X(cuCtxSetCurrent)               \
    X(cuCtxPushCurrent_v2)           \
    X(cuCtxPopCurrent_v2)            \
    X(cuCtxGetDevice)                \
    X(cuCtxSynchronize)              \
    X(cuLibraryLoadData)             \
    X(cuLibraryUnload)               \
    X(cuLibraryGetKernel)            \
    X(cuKernelGetFunction)           \
    X(cuKernelGetParamInfo)          \
    X(cuKernelSetAttribute)          \
    X(cuKernelGetAttribute)          \
    X(cuFuncSetAttribute)            \
    X(cuFuncGetAttribute)            \
    X(cuLaunchKernel)                \
    X(cuLaunchKernelEx)              \
    X(cuStreamCreate)                \
    X(cuStreamDestroy_v2)            \
    X(cuStreamSynchronize)           \
    X(cuStreamIsCapturing)           \
    X(cuStreamBeginCapture_v2)       \
    X(cuStreamEndCapture)            \
    X(cuStreamGetCtx)                \
    X(cuGraphInstantiateWithFlags)   \
    X(cuGraphLaunch)                 \
    X(cuGraphExecDestroy)            \
    X(cuGraphDestroy)                \
    X(cuPointerGetAttribute)         \
    X(cuPointerGetAttributes)        \
    X(cuMemAlloc_v2)                 \
    X(cuMemFree_v2)                  \
    X(cuMemAllocAsync)               \
    X(cuMemFreeAsync)                \
    X(cuMemcpyHtoD_v2)               \
    X(cuMemcpyDtoH_v2)               \
    X(cuMemsetD8_v2)                 \
    X(cuTensorMapEncodeTiled)

enum fake_function {
#define X(name) FN_##name,
    FAKE_FUNCTIONS(X)
#undef X
        FN_COUNT
};

#endif
