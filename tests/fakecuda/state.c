/* The fake's one state, its lock, and the scripting that every driver call goes through. */
#include "state.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VIOLATION_BYTES = 65536, LOG_ENTRIES = 4096, HOLD_SECONDS = 20 };

struct log_entry {
    int32_t function;
    int32_t code;
};

struct fake_state fake = {
    .driver_version = FAKE_DEFAULT_DRIVER,
    .devices = 2,
    .capability = {90, 90},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* read before the lock is taken */
static _Atomic unsigned delay[FN_COUNT];
static int held[FN_COUNT], waiting[FN_COUNT];
static char violations[VIOLATION_BYTES];
static size_t violation_bytes;
static struct log_entry journal[LOG_ENTRIES];
static uint64_t logged;
static uint64_t noise = 88172645463325252u;

static int is_sticky(CUresult code) { return code == 700 || code == 702 || code == 710 || (code >= 714 && code <= 719); }

/* The functions that answer whatever state the process is in. */
static int needs_init(enum fake_function function) {
    return function != FN_cuInit && function != FN_cuDriverGetVersion && function != FN_cuGetErrorName &&
           function != FN_cuGetErrorString && function != FN_cuGetProcAddress_v2;
}

static void log_call(enum fake_function function, CUresult code) {
    journal[logged++ % LOG_ENTRIES] = (struct log_entry){function, code};
}

/* Burn up to the function's delay outside the lock, a random part of it: races get their chance. */
static void spin(enum fake_function function) {
    pthread_mutex_lock(&lock);
    noise ^= noise << 13, noise ^= noise >> 7, noise ^= noise << 17;
    unsigned turns = delay[function] ? (unsigned)(noise % delay[function]) : 0;
    pthread_mutex_unlock(&lock);
    while (turns--)
        sched_yield();
}

static void wait_while_held(enum fake_function function) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += HOLD_SECONDS;
    waiting[function]++;
    pthread_cond_broadcast(&changed);
    while (held[function])
        if (pthread_cond_timedwait(&changed, &lock, &deadline) != 0) {
            fake_violation(0, "%s was held for %d s and never released", fake_function_names[function], HOLD_SECONDS);
            break;
        }
    waiting[function]--;
}

void fake_lock(void) { pthread_mutex_lock(&lock); }

void fake_unlock(void) { pthread_mutex_unlock(&lock); }

CUresult fake_enter(enum fake_function function) {
    if (delay[function])
        spin(function);
    pthread_mutex_lock(&lock);
    CUresult code = fake_scripted(function);
    if (held[function])
        wait_while_held(function);
    if (is_sticky(code))
        fake.sticky = code;
    if (code == CUDA_SUCCESS && needs_init(function)) {
        if (!fake.initialised || fake.forked)
            code = CUDA_ERROR_NOT_INITIALIZED;
        else
            code = fake.sticky;
    }
    if (function == FN_cuInit && fake.forked)
        code = CUDA_ERROR_NOT_INITIALIZED;
    if (code != CUDA_SUCCESS)
        return fake_leave(function, code);
    return CUDA_SUCCESS;
}

CUresult fake_leave(enum fake_function function, CUresult code) {
    log_call(function, code);
    pthread_mutex_unlock(&lock);
    return code;
}

CUresult fake_violation(CUresult code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t space = sizeof violations - violation_bytes;
    int written = vsnprintf(violations + violation_bytes, space, format, arguments);
    va_end(arguments);
    if (written > 0 && (size_t)written + 1 < space) {
        violation_bytes += (size_t)written;
        violations[violation_bytes++] = '\n';
        violations[violation_bytes] = 0;
    }
    return code;
}

CUresult fake_trap(const char *name) {
    pthread_mutex_lock(&lock);
    fake_violation(0, "%s is of an old ABI: resolve its _v2", name);
    pthread_mutex_unlock(&lock);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* A child of fork has the parent's state and no driver: every call but the trivial ones says "not initialised". */
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork_parent(void) { pthread_mutex_unlock(&lock); }
static void after_fork_child(void) {
    fake.forked = fake.initialised;
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void start(void) {
    const char *devices = getenv("FAKECUDA_DEVICES"), *driver = getenv("FAKECUDA_DRIVER");
    fake.launch = calloc(FAKE_LAUNCHES, sizeof *fake.launch);
    if (driver)
        fake.driver_version = atoi(driver);
    if (devices) {
        for (fake.devices = 0; *devices && fake.devices < FAKE_DEVICES_MAX; devices += *devices == ',')
            fake.capability[fake.devices++] = (unsigned)strtoul(devices, (char **)&devices, 10);
    }
    for (int i = 0; i < FAKE_DEVICES_MAX; i++) {
        fake.context[i].device = i;
        fake.next_address[i] = (CUdeviceptr)(i + 1) << 40;
    }
    fake_script_text(getenv("FAKECUDA_FAIL"));
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* --- control: what the tests call --- */

EXPORT int fake_delay(const char *name, unsigned turns) {
    int function = fake_function_of(name);
    if (function >= 0)
        delay[function] = turns;
    return function;
}

EXPORT int fake_hold(const char *name, int on) {
    int function = fake_function_of(name);
    pthread_mutex_lock(&lock);
    if (function >= 0)
        held[function] = on;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return function;
}

/* Wait until `threads` calls of a held function stand in it; return how many do. */
EXPORT int fake_await(const char *name, int threads) {
    int function = fake_function_of(name);
    if (function < 0)
        return -1;
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += HOLD_SECONDS / 2;
    pthread_mutex_lock(&lock);
    while (waiting[function] < threads && pthread_cond_timedwait(&changed, &lock, &deadline) == 0)
        ;
    int reached = waiting[function];
    pthread_mutex_unlock(&lock);
    return reached;
}

/* Copy the violations noted so far, one a line, and forget them. */
EXPORT int fake_take_violations(char *out, size_t space) {
    pthread_mutex_lock(&lock);
    int bytes = snprintf(out, space, "%s", violation_bytes ? violations : "");
    violation_bytes = 0;
    pthread_mutex_unlock(&lock);
    return bytes;
}

EXPORT uint64_t fake_logged(void) {
    pthread_mutex_lock(&lock);
    uint64_t count = logged;
    pthread_mutex_unlock(&lock);
    return count;
}

EXPORT const char *fake_log_entry(uint64_t index, int32_t *code) {
    const char *name = NULL;
    pthread_mutex_lock(&lock);
    if (index < logged && index + LOG_ENTRIES >= logged) {
        name = fake_function_names[journal[index % LOG_ENTRIES].function];
        *code = journal[index % LOG_ENTRIES].code;
    }
    pthread_mutex_unlock(&lock);
    return name;
}

EXPORT uint64_t fake_launches(void) {
    pthread_mutex_lock(&lock);
    uint64_t count = fake.launches;
    pthread_mutex_unlock(&lock);
    return count;
}

EXPORT int fake_launch(uint64_t index, struct fake_launch_record *out) {
    pthread_mutex_lock(&lock);
    int known = index < fake.launches && index + FAKE_LAUNCHES >= fake.launches;
    if (known)
        *out = fake.launch[index % FAKE_LAUNCHES];
    pthread_mutex_unlock(&lock);
    return known;
}

EXPORT void fake_set_devices(int devices, const unsigned *capability, int driver_version) {
    pthread_mutex_lock(&lock);
    fake.devices = devices < FAKE_DEVICES_MAX ? devices : FAKE_DEVICES_MAX;
    for (int i = 0; i < fake.devices; i++)
        fake.capability[i] = capability[i];
    memset(fake.multiprocessors, 0, sizeof fake.multiprocessors);
    memset(fake.memory_bytes, 0, sizeof fake.memory_bytes);
    fake.driver_version = driver_version;
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_set_size(CUdevice device, int multiprocessors, size_t memory_bytes) {
    pthread_mutex_lock(&lock);
    fake.multiprocessors[device] = multiprocessors;
    fake.memory_bytes[device] = memory_bytes;
    pthread_mutex_unlock(&lock);
}

/* Forget scripts, counts, records, captures and current contexts; handles stay good, since the core may hold them. */
EXPORT void fake_reset(void) {
    pthread_mutex_lock(&lock);
    fake_script_clear();
    memset(held, 0, sizeof held);
    for (int i = 0; i < FN_COUNT; i++)
        delay[i] = 0;
    for (int i = 0; i < FAKE_DEVICES_MAX; i++)
        fake.context[i].lost = CUDA_SUCCESS;
    violation_bytes = 0;
    logged = 0;
    fake.launches = 0;
    fake.sticky = CUDA_SUCCESS;
    for (struct fake_stream *stream = fake.streams; stream; stream = stream->next)
        stream->capture = CU_STREAM_CAPTURE_STATUS_NONE;
    fake.generation++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}
