/* Finds and opens the driver that this process uses. */
#include "driver/find_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

nj_driver_calls nj_calls;
const nj_vendor *nj_vendor_found = &nj_vendor_cuda;

/* NVIDIA's first, since machines without an AMD GPU may have HIP installed */
static const nj_vendor *const vendors[] = {&nj_vendor_cuda, &nj_vendor_hip};
enum { VENDORS = sizeof vendors / sizeof *vendors };

/* Guards all variables below except the atomics, and the devices of driver.c. */
pthread_mutex_t nj_driver_lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;     /* the opened driver; NULL if none is open */
static bool found;        /* true once every symbol is looked up */
static char problem[256]; /* dlerror of the first driver that did not open */
static atomic_bool ready;
static atomic_bool started; /* true once cuInit was called: after that, forked children cannot use the driver */
static atomic_bool forked;

static void after_fork_in_child(void)
{
    atomic_store(&forked, atomic_load(&started));
    /* another thread of the parent may have held the lock when this one forked */
    pthread_mutex_init(&nj_driver_lock, NULL);
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

/* Returns the driver file that the vendor's environment variable names; NULL if it is unset or empty. */
static const char *named_file(const nj_vendor *it)
{
    const char *path = getenv(it->variable);
    return path != NULL && *path != '\0' ? path : NULL;
}

/* True if this vendor's driver may be opened. If a variable names a file of one vendor, the other vendor's driver is not tried. */
static bool may_open(const nj_vendor *it)
{
    return named_file(it) != NULL || (named_file(&nj_vendor_cuda) == NULL && named_file(&nj_vendor_hip) == NULL);
}

/* Opens the driver of a vendor; NULL if no file opens. */
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

/* Opens a driver. Prefers one that the process has already opened, since the framework that opened it is using it; with RTLD_NOLOAD
 * opens no other. */
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
    pthread_mutex_lock(&nj_driver_lock);
    if (library == NULL) {
        open_locked(RTLD_NOLOAD);
    }
    if (library != NULL && !found) {
        /* if a symbol is missing, `nj_driver_ready` reports it */
        (void)find_symbols();
    }
    known = found;
    pthread_mutex_unlock(&nj_driver_lock);
    return known;
}

static bool lacks_driver(nj_error *error, const char *call, const char *got)
{
    return nj_driver_failed(error, call, -1, got, "expected %s", nj_vendor_found->needed);
}

/* Fills the error of a process without a driver; it names every driver that was tried. False. */
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
    pthread_mutex_lock(&nj_driver_lock);
    bool loaded = atomic_load(&ready) || load_locked(error);
    pthread_mutex_unlock(&nj_driver_lock);
    return loaded;
}

bool nj_driver_can_start(void)
{
    pthread_mutex_lock(&nj_driver_lock);
    if (library == NULL) {
        open_locked(0);
    }
    bool can = library != NULL && (found || find_symbols() == NULL) && (atomic_load(&ready) || !atomic_load(&started));
    pthread_mutex_unlock(&nj_driver_lock);
    return can;
}
