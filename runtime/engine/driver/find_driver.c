/* Which driver this process uses, and opening it. */
#include "driver/find_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

nj_driver_calls nj_calls;
const nj_vendor *nj_vendor_found = &nj_vendor_cuda;

/* NVIDIA's first: machines without a GPU of AMD may have the files of HIP */
static const nj_vendor *const vendors[] = {&nj_vendor_cuda, &nj_vendor_hip};
enum { VENDORS = sizeof vendors / sizeof *vendors };

/* guards everything below but the atomics, and the devices of driver.c */
pthread_mutex_t nj_driver_lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static bool found; /* every symbol */
static char problem[256]; /* why no driver was opened */
static atomic_bool ready;
static atomic_bool started; /* cuInit was called: a fork from here on is beyond repair */
static atomic_bool forked;

static void after_fork_in_child(void)
{
    atomic_store(&forked, atomic_load(&started));
    /* another thread of the parent may have held it */
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
    pthread_mutex_lock(&nj_driver_lock);
    if (library == NULL) {
        open_locked(RTLD_NOLOAD);
    }
    if (library != NULL && !found) {
        /* the first use of the driver reports the missing file */
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
