#include "driver/function.h"

enum {
    /* static and dynamic shared memory of a block that needs no opt-in (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) */
    USUAL_SHARED_BYTES = 48 * 1024,
    PORTABLE_CLUSTER_MAX = 8,
};

/* True if a launch with this much dynamic shared memory needs the opt-in. */
static bool is_unusual(const nj_function *function, unsigned int dynamic_bytes)
{
    return (uint64_t)dynamic_bytes + function->shared_bytes > USUAL_SHARED_BYTES;
}

bool nj_function_limited(const nj_function *function, unsigned int dynamic_bytes, unsigned int num_ctas)
{
    return nj_calls.cuKernelSetAttribute != NULL && (is_unusual(function, dynamic_bytes) || num_ctas > PORTABLE_CLUSTER_MAX);
}

static nj_outcome set_attribute(const nj_function *function, const nj_device *device, int attribute, int value)
{
    return NJ_TRY(cuKernelSetAttribute, attribute, value, function->handle, device->handle);
}

/* Opts in to dynamic shared memory, and prefers shared memory over the L1 cache as far as possible, as Triton does. */
static nj_outcome raise_shared(nj_function *function, const nj_device *device, int bytes)
{
    nj_outcome outcome = set_attribute(function, device, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
    if (outcome.call == NULL) {
        outcome = set_attribute(function, device, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
    }
    if (outcome.call == NULL) {
        function->limits[device->ordinal].shared_bytes = bytes;
    }
    return outcome;
}

/* Raises the limits of a kernel. After a reset it raises them to the maximum over all runnables of the kernel, because these do not
 * raise them again. */
static nj_outcome raise_locked(nj_function *function, const nj_device *device, unsigned int dynamic_bytes, unsigned int num_ctas,
                               bool lost)
{
    nj_outcome outcome = NJ_SUCCESS;
    nj_function_limits *limits = &function->limits[device->ordinal];
    int bytes = (int)dynamic_bytes > limits->shared_bytes ? (int)dynamic_bytes : limits->shared_bytes;
    if (is_unusual(function, (unsigned int)bytes) && (lost || bytes > limits->shared_bytes)) {
        outcome = raise_shared(function, device, bytes);
    }
    bool wide = limits->wide || num_ctas > PORTABLE_CLUSTER_MAX;
    if (outcome.call == NULL && wide && (lost || !limits->wide)) {
        outcome = set_attribute(function, device, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
        limits->wide |= outcome.call == NULL;
    }
    return outcome;
}

nj_outcome nj_function_raise(nj_function *function, nj_device *device, unsigned int dynamic_bytes, unsigned int num_ctas, bool lost)
{
    pthread_mutex_lock(&function->lock);
    nj_function_limits *limits = &function->limits[device->ordinal];
    unsigned int epoch = atomic_load(&device->epoch);
    nj_outcome outcome = raise_locked(function, device, dynamic_bytes, num_ctas, lost || atomic_load(&limits->epoch) != epoch);
    if (outcome.call == NULL) {
        atomic_store(&limits->epoch, epoch);
    }
    pthread_mutex_unlock(&function->lock);
    return outcome;
}
