#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "errors.h"

nj_driver_calls nj_cuda;

/* guards everything below but the atomics; waited for without the GIL, which its holder may need */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static bool found; /* every symbol */
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

void nj_raise_forked(PyObject *where)
{
    PyObject *what = PyUnicode_FromString(
        "CUDA was initialised before fork; use spawn (multiprocessing.set_start_method) or fork earlier");
    if (what != NULL) {
        nj_driver_error("cuInit", CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", what, where);
        Py_DECREF(what);
    }
}

/* Errors after which the context is lost (cuda.h: "the process must be terminated and relaunched"). */
static bool is_sticky(CUresult code)
{
    return code == CUDA_ERROR_ILLEGAL_ADDRESS || code == CUDA_ERROR_LAUNCH_TIMEOUT || code == CUDA_ERROR_ASSERT ||
           (code >= CUDA_ERROR_HARDWARE_STACK_ERROR && code <= CUDA_ERROR_LAUNCH_FAILED);
}

void nj_device_note(nj_device *device, PyObject *label, const unsigned int grid[3])
{
    PyObject *old = NULL;
    NJ_LOCK(&device->last_lock);
    if (device->last_label != label) {
        old = device->last_label;
        device->last_label = Py_NewRef(label);
    }
    memcpy(device->last_grid, grid, sizeof device->last_grid);
    NJ_UNLOCK(&device->last_lock);
    Py_XDECREF(old);
}

/* "; last launch: ..." of a device, "" if there was none. */
static PyObject *last_launch(nj_device *device)
{
    unsigned int grid[3];
    NJ_LOCK(&device->last_lock);
    PyObject *label = Py_XNewRef(device->last_label);
    memcpy(grid, device->last_grid, sizeof grid);
    NJ_UNLOCK(&device->last_lock);
    if (label == NULL) {
        return PyUnicode_FromString("");
    }
    PyObject *text =
        PyUnicode_FromFormat("; last launch: %S with grid (%u, %u, %u)", label, grid[0], grid[1], grid[2]);
    Py_DECREF(label);
    return text;
}

static PyObject *sticky_message(const char *call, nj_device *device)
{
    PyObject *last = device == NULL ? PyUnicode_FromString("") : last_launch(device);
    if (last == NULL) {
        return NULL;
    }
    PyObject *what = PyUnicode_FromFormat(
        "%s failed: a kernel broke the CUDA context, and the process must be restarted%U", call, last);
    Py_DECREF(last);
    return what;
}

int nj_check(nj_outcome outcome, nj_device *device, PyObject *where)
{
    if (outcome.call == NULL) {
        return 0;
    }
    /* cuInit always comes first here, so that this code only ever means a fork */
    if (outcome.code == CUDA_ERROR_NOT_INITIALIZED) {
        nj_raise_forked(where);
        return -1;
    }
    const char *name = NULL;
    if (nj_cuda.cuGetErrorName(outcome.code, &name) != CUDA_SUCCESS) {
        name = NULL;
    }
    PyObject *what = NULL;
    if (is_sticky(outcome.code)) {
        atomic_store(&broken, true);
        what = sticky_message(outcome.call, device);
        if (what == NULL) {
            return -1;
        }
    }
    nj_driver_error(outcome.call, outcome.code, name, what, where);
    Py_XDECREF(what);
    return -1;
}

/* Fills `nj_cuda`; the name of a symbol that is missing, or NULL. */
static const char *find_symbols(void)
{
#define NJ_FIND(name, symbol, parameters, required)                                                                    \
    *(void **)&nj_cuda.name = dlsym(library, symbol);                                                                  \
    if (required && nj_cuda.name == NULL) {                                                                            \
        return symbol;                                                                                                 \
    }
    NJ_DRIVER_CALLS(NJ_FIND)
#undef NJ_FIND
    found = true;
    return NULL;
}

/* Opens the driver, or, with RTLD_NOLOAD, takes the one that the process has opened. */
static void open_locked(int flags)
{
    const char *path = getenv("NOJIT_LIBCUDA");
    library = dlopen(path != NULL && *path != '\0' ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL | flags);
    if (library != NULL) {
        pthread_atfork(NULL, NULL, after_fork_in_child);
    }
}

bool nj_driver_find(void)
{
    bool known = atomic_load_explicit(&ready, memory_order_acquire);
    if (known || nj_forked()) {
        return known;
    }
    Py_BEGIN_ALLOW_THREADS
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
    Py_END_ALLOW_THREADS
    return known;
}

typedef struct {
    char problem[512]; /* of dlopen or dlsym; empty if neither failed */
    const char *call;
    nj_outcome outcome;
} load_result;

static void load_locked(load_result *result)
{
    if (library == NULL) {
        open_locked(0);
        if (library == NULL) {
            result->call = "dlopen";
            snprintf(result->problem, sizeof result->problem, "%s", dlerror());
            return;
        }
    }
    const char *missing = found ? NULL : find_symbols();
    if (missing != NULL) {
        result->call = "dlsym";
        snprintf(result->problem, sizeof result->problem, "no %s", missing);
        return;
    }
    atomic_store(&started, true);
    result->outcome = NJ_TRY(cuInit, 0);
    atomic_store(&ready, result->outcome.call == NULL);
}

int nj_driver_ready(void)
{
    if (nj_forked()) {
        nj_raise_forked(NULL);
        return -1;
    }
    if (atomic_load_explicit(&ready, memory_order_acquire)) {
        return 0;
    }
    load_result result = {.outcome = NJ_SUCCESS};
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&lock);
    if (!atomic_load(&ready)) {
        load_locked(&result);
    }
    pthread_mutex_unlock(&lock);
    Py_END_ALLOW_THREADS
    if (result.call != NULL) {
        PyObject *what = PyUnicode_FromString("expected a CUDA driver of version 12.0 or later (libcuda.so.1)");
        if (what != NULL) {
            nj_driver_error(result.call, -1, result.problem, what, NULL);
            Py_DECREF(what);
        }
        return -1;
    }
    return nj_check(result.outcome, NULL, NULL);
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

nj_device *nj_device_ready(int ordinal)
{
    if (nj_driver_ready() < 0) {
        return NULL;
    }
    if (ordinal < 0 || ordinal >= NJ_DEVICES_MAX) {
        nj_driver_error("cuDeviceGet", CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", NULL, NULL);
        return NULL;
    }
    nj_device *device = &devices[ordinal];
    nj_outcome outcome = NJ_SUCCESS;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&lock);
    if (device->primary == NULL) {
        outcome = NJ_TRY(cuDeviceGet, &device->handle, ordinal);
        if (outcome.call == NULL) {
            outcome = retain_primary(device);
        }
    }
    pthread_mutex_unlock(&lock);
    Py_END_ALLOW_THREADS
    return nj_check(outcome, device, NULL) < 0 ? NULL : device;
}

nj_outcome nj_device_renew(nj_device *device, unsigned int epoch)
{
    nj_outcome outcome = NJ_SUCCESS;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&lock);
    if (atomic_load(&device->epoch) == epoch) {
        /* the reset dropped our share of the old one, so there is nothing to release */
        outcome = retain_primary(device);
        if (outcome.call == NULL) {
            atomic_fetch_add(&device->epoch, 1);
        }
    }
    pthread_mutex_unlock(&lock);
    Py_END_ALLOW_THREADS
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
    if (current != NULL && nj_cuda.cuCtxGetDevice(&handle) == CUDA_SUCCESS && handle == device->handle) {
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
        (void)nj_cuda.cuCtxPopCurrent(&popped);
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
    return !is_sticky(outcome.code);
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
    if (!atomic_load_explicit(&ready, memory_order_acquire)) {
        return can_start();
    }
    for (int i = 0; nj_cuda.cuMemGetInfo != NULL && i < NJ_DEVICES_MAX; i++) {
        if (atomic_load_explicit(&devices[i].primary, memory_order_acquire) != NULL && !is_healthy(&devices[i])) {
            atomic_store(&broken, true);
            return false;
        }
    }
    return true;
}

int nj_current_device(void)
{
    CUcontext current = NULL;
    CUdevice device = 0;
    if (nj_driver_ready() < 0 || NJ_CUDA(NULL, cuCtxGetCurrent, &current) < 0) {
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
    return nj_check(outcome, NULL, NULL) < 0 ? -1 : device;
}
