/* Errors of driver calls, devices and their primary contexts. */
#include "driver/find_driver.h"

static nj_device devices[NJ_DEVICES_MAX]; /* guarded by nj_driver_lock, except the atomics */
static atomic_bool broken;

bool nj_is_sticky(CUresult code)
{
    return code == CUDA_ERROR_ILLEGAL_ADDRESS || code == CUDA_ERROR_LAUNCH_TIMEOUT || code == CUDA_ERROR_ASSERT ||
           (code >= CUDA_ERROR_HARDWARE_STACK_ERROR && code <= CUDA_ERROR_LAUNCH_FAILED);
}

bool nj_outcome_good(nj_outcome outcome, nj_error *error)
{
    if (outcome.call == NULL) {
        return true;
    }
    /* nojit calls cuInit before any other function, so this code always means that the process forked after that */
    if (outcome.code == CUDA_ERROR_NOT_INITIALIZED) {
        return nj_refuse_forked(error);
    }
    const char *name = NULL;
    if (nj_calls.cuGetErrorName(outcome.code, &name) != CUDA_SUCCESS || name == NULL) {
        name = "unknown error";
    }
    bool sticky = nj_is_sticky(outcome.code);
    if (sticky) {
        atomic_store(&broken, true);
    }
    const char *call = nj_vendor_found->spell(outcome.call);
    nj_text broke = nj_format(": a kernel broke the %s context, and the process must be restarted", nj_vendor_found->name);
    return nj_driver_failed(error, call, outcome.code, name, "%s failed%s", call, sticky ? broke.text : "");
}

static nj_outcome retain_primary(nj_device *device)
{
    CUcontext context = NULL;
    nj_outcome outcome = NJ_TRY(cuDevicePrimaryCtxRetain, &context, device->handle);
    if (outcome.call == NULL) {
        device->primary = context;
    }
    return outcome;
}

nj_device *nj_device_ready(int ordinal, nj_error *error)
{
    if (!nj_driver_ready(error)) {
        return NULL;
    }
    nj_outcome outcome = nj_outcome_of(CUDA_ERROR_INVALID_DEVICE, "cuDeviceGet");
    if (ordinal < 0 || ordinal >= NJ_DEVICES_MAX) {
        nj_outcome_good(outcome, error);
        return NULL;
    }
    nj_device *device = &devices[ordinal];
    pthread_mutex_lock(&nj_driver_lock);
    outcome = device->primary == NULL ? NJ_TRY(cuDeviceGet, &device->handle, ordinal) : NJ_SUCCESS;
    if (device->primary == NULL && outcome.call == NULL) {
        device->ordinal = ordinal;
        outcome = retain_primary(device);
    }
    pthread_mutex_unlock(&nj_driver_lock);
    return nj_outcome_good(outcome, error) ? device : NULL;
}

nj_outcome nj_device_renew(nj_device *device, unsigned int epoch)
{
    nj_outcome outcome = NJ_SUCCESS;
    pthread_mutex_lock(&nj_driver_lock);
    if (atomic_load(&device->epoch) == epoch) {
        /* the reset already released our reference to the old context */
        outcome = retain_primary(device);
        if (outcome.call == NULL) {
            atomic_fetch_add(&device->epoch, 1);
        }
    }
    pthread_mutex_unlock(&nj_driver_lock);
    return outcome;
}

nj_outcome nj_context_enter(const nj_device *device, bool *pushed)
{
    CUcontext current = NULL;
    CUcontext primary = atomic_load_explicit(&device->primary, memory_order_relaxed);
    *pushed = false;
    nj_outcome outcome = NJ_TRY(cuCtxGetCurrent, &current);
    if (outcome.call != NULL || current == primary) {
        return outcome;
    }
    CUdevice handle;
    /* A green context, or a context that the host program created: launches on its streams need it, not the primary context. */
    if (current != NULL && nj_calls.cuCtxGetDevice(&handle) == CUDA_SUCCESS && handle == device->handle) {
        return NJ_SUCCESS;
    }
    outcome = NJ_TRY(cuCtxPushCurrent, primary);
    *pushed = outcome.call == NULL;
    return outcome;
}

void nj_context_leave(bool pushed)
{
    CUcontext popped;
    if (pushed) {
        /* our context is still on top of the stack, so this fails only if the launch has failed too */
        (void)nj_calls.cuCtxPopCurrent(&popped);
    }
}

/* False if a kernel broke the device's primary context. Sticky errors stay in a context, and every call in it returns them. */
static bool is_healthy(const nj_device *device)
{
    size_t free_bytes, total_bytes;
    bool pushed;
    nj_outcome outcome = nj_context_enter(device, &pushed);
    if (outcome.call == NULL) {
        outcome = NJ_TRY(cuMemGetInfo, &free_bytes, &total_bytes);
        nj_context_leave(pushed);
    }
    return !nj_is_sticky(outcome.code);
}

bool nj_driver_healthy(void)
{
    if (atomic_load(&broken) || nj_forked()) {
        return false;
    }
    if (!nj_driver_known()) {
        return nj_driver_can_start();
    }
    for (int i = 0; nj_calls.cuMemGetInfo != NULL && i < NJ_DEVICES_MAX; i++) {
        if (atomic_load_explicit(&devices[i].primary, memory_order_acquire) != NULL && !is_healthy(&devices[i])) {
            atomic_store(&broken, true);
            return false;
        }
    }
    return true;
}

int nj_current_device(nj_error *error)
{
    CUcontext current = NULL;
    CUdevice device = 0;
    if (!nj_driver_ready(error) || !nj_outcome_good(NJ_TRY(cuCtxGetCurrent, &current), error)) {
        return -1;
    }
    if (current == NULL) {
        return device;
    }
    nj_outcome outcome = NJ_TRY(cuCtxGetDevice, &device);
    for (int i = 0; nj_is_lost(outcome) && i < NJ_DEVICES_MAX; i++) {
        if (atomic_load_explicit(&devices[i].primary, memory_order_acquire) == current) {
            return i; /* the device was reset: the launch renews the context */
        }
    }
    return nj_outcome_good(outcome, error) ? device : -1;
}
