#include "driver/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

nj_driver_calls nj_calls;
const nj_vendor *nj_vendor_found = &nj_vendor_cuda;

/* NVIDIA's first: machines without a GPU of AMD may have the files of HIP */
static const nj_vendor *const vendors[] = {&nj_vendor_cuda, &nj_vendor_hip};
enum { VENDORS = sizeof vendors / sizeof *vendors };

/* guards everything below but the atomics */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static bool found; /* every symbol */
static char problem[256]; /* why no driver was opened */
static nj_device devices[NJ_DEVICES_MAX];
static atomic_bool ready;
static atomic_bool started; /* cuInit was called: a fork from here on is beyond repair */
static atomic_bool forked;
static atomic_bool broken;

static void after_fork_in_child(void)
{
    atomic_store(&forked, atomic_load(&started));
    /* another thread of the parent may have held it */
    pthread_mutex_init(&lock, NULL);
}

bool nj_forked(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed);
}

bool nj_refuse_forked(nj_error *error)
{
    const nj_vendor *it = nj_vendor_found;
    return nj_driver_failed(error, it->spell("cuInit"), CUDA_ERROR_NOT_INITIALIZED, it->not_initialized_name,
                            "%s was initialised before fork; use spawn (multiprocessing.set_start_method) or fork earlier", it->name);
}

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
    /* cuInit always comes first here, so that this code only ever means a fork */
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

/* The file that the user names as a vendor's driver; NULL if none. */
static const char *named_file(const nj_vendor *it)
{
    const char *path = getenv(it->variable);
    return path != NULL && *path != '\0' ? path : NULL;
}

/* Whether this vendor's driver may be opened. If a variable names a file for one vendor, the other vendor's may not. */
static bool may_open(const nj_vendor *it)
{
    return named_file(it) != NULL || (named_file(&nj_vendor_cuda) == NULL && named_file(&nj_vendor_hip) == NULL);
}

/* Opens the driver of a vendor; NULL if it is not there. */
static void *open_vendor(const nj_vendor *it, int flags)
{
    const char *path = named_file(it);
    if (path != NULL) {
        return dlopen(path, RTLD_NOW | RTLD_LOCAL | flags);
    }
    void *opened = NULL;
    for (size_t i = 0; opened == NULL && i < sizeof it->files / sizeof *it->files && it->files[i] != NULL; i++) {
        opened = dlopen(it->files[i], RTLD_NOW | RTLD_LOCAL | flags);
    }
    return opened;
}

static bool open_any(int flags)
{
    problem[0] = '\0';
    for (size_t i = 0; library == NULL && i < VENDORS; i++) {
        if (!may_open(vendors[i])) {
            continue;
        }
        library = open_vendor(vendors[i], flags);
        if (library != NULL) {
            nj_vendor_found = vendors[i];
            pthread_atfork(NULL, NULL, after_fork_in_child);
        } else if (problem[0] == '\0') {
            const char *told = dlerror();
            snprintf(problem, sizeof problem, "%s", told == NULL ? "" : told);
        }
    }
    return library != NULL;
}

/* Opens the driver, or, with RTLD_NOLOAD, takes the one that the process has opened: torch knows which of two is in use. */
static void open_locked(int flags)
{
    if (!open_any(flags | RTLD_NOLOAD) && (flags & RTLD_NOLOAD) == 0) {
        open_any(flags);
    }
}

static const char *find_symbols(void)
{
    const char *missing = nj_vendor_found->find(library);
    found = missing == NULL;
    return missing;
}

bool nj_driver_find(void)
{
    bool known = nj_driver_known();
    if (known || nj_forked()) {
        return known;
    }
    pthread_mutex_lock(&lock);
    if (library == NULL) {
        open_locked(RTLD_NOLOAD);
    }
    if (library != NULL && !found) {
        /* what is missing is told when the driver is asked for */
        (void)find_symbols();
    }
    known = found;
    pthread_mutex_unlock(&lock);
    return known;
}

static bool lacks_driver(nj_error *error, const char *call, const char *got)
{
    return nj_driver_failed(error, call, -1, got, "expected %s", nj_vendor_found->needed);
}

/* Names every driver that would have done. */
static bool lacks_any(nj_error *error)
{
    bool cuda = may_open(&nj_vendor_cuda), hip = may_open(&nj_vendor_hip);
    return nj_driver_failed(error, "dlopen", -1, problem, "expected %s%s%s", cuda ? nj_vendor_cuda.needed : "", cuda && hip ? ", or " : "",
                            hip ? nj_vendor_hip.needed : "");
}

static bool load_locked(nj_error *error)
{
    if (library == NULL) {
        open_locked(0);
        if (library == NULL) {
            return lacks_any(error);
        }
    }
    const char *missing = found ? NULL : find_symbols();
    if (missing != NULL) {
        return lacks_driver(error, "dlsym", nj_format("no %s", missing).text);
    }
    atomic_store(&started, true);
    nj_outcome outcome = NJ_TRY(cuInit, 0);
    atomic_store(&ready, outcome.call == NULL);
    return nj_outcome_good(outcome, error);
}

bool nj_driver_known(void)
{
    return atomic_load_explicit(&ready, memory_order_acquire);
}

bool nj_driver_ready(nj_error *error)
{
    if (nj_forked()) {
        return nj_refuse_forked(error);
    }
    if (nj_driver_known()) {
        return true;
    }
    pthread_mutex_lock(&lock);
    bool loaded = atomic_load(&ready) || load_locked(error);
    pthread_mutex_unlock(&lock);
    return loaded;
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
    pthread_mutex_lock(&lock);
    outcome = device->primary == NULL ? NJ_TRY(cuDeviceGet, &device->handle, ordinal) : NJ_SUCCESS;
    if (device->primary == NULL && outcome.call == NULL) {
        device->ordinal = ordinal;
        outcome = retain_primary(device);
    }
    pthread_mutex_unlock(&lock);
    return nj_outcome_good(outcome, error) ? device : NULL;
}

nj_outcome nj_device_renew(nj_device *device, unsigned int epoch)
{
    nj_outcome outcome = NJ_SUCCESS;
    pthread_mutex_lock(&lock);
    if (atomic_load(&device->epoch) == epoch) {
        /* the reset dropped our share of the old one, so there is nothing to release */
        outcome = retain_primary(device);
        if (outcome.call == NULL) {
            atomic_fetch_add(&device->epoch, 1);
        }
    }
    pthread_mutex_unlock(&lock);
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
    /* a green context, or one that the host program made: its streams are launched on in it, not in the primary */
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
        /* what was pushed is still on top, so that this cannot fail but where the launch has failed already */
        (void)nj_calls.cuCtxPopCurrent(&popped);
    }
}

/* Errors of kernels stay with the context, and any call that looks at it reports them. */
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

/* Before CUDA was started: whether there is a driver, and it has not refused to start. Starts nothing. */
static bool can_start(void)
{
    pthread_mutex_lock(&lock);
    if (library == NULL) {
        open_locked(0);
    }
    bool can = library != NULL && (found || find_symbols() == NULL) && (atomic_load(&ready) || !atomic_load(&started));
    pthread_mutex_unlock(&lock);
    return can;
}

bool nj_driver_healthy(void)
{
    if (atomic_load(&broken) || nj_forked()) {
        return false;
    }
    if (!nj_driver_known()) {
        return can_start();
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
            return i; /* somebody has reset it: the launch renews the context */
        }
    }
    return nj_outcome_good(outcome, error) ? device : -1;
}
