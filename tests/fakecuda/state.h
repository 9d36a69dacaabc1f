/* What all parts of the fake share: one state behind one lock, and the way in and out of every driver call. */
#ifndef FAKECUDA_STATE_H
#define FAKECUDA_STATE_H

#include "abi.h"
#include "cubin.h"
#include "functions.h"

#define EXPORT __attribute__((visibility("default")))
/* what drivers of CUDA 12.0 to 12.3 do not have yet */
#ifdef FAKECUDA_OLD_DRIVER
#define EXPORT_RECENT
#else
#define EXPORT_RECENT EXPORT
#endif

enum {
    FAKE_DEVICES_MAX = 8,
    FAKE_PARAM_BYTES_MAX = 4096,
    FAKE_ATTRS_MAX = 8,
    FAKE_LAUNCHES = 256,
    FAKE_DEFAULT_DRIVER = 13000,
    FAKE_TENSOR_MAP_BYTES = 128,
};

struct fake_context {
    CUdevice device;
    int retained;
    /* counts resets: a CUfunction of an older epoch is stale */
    unsigned epoch;
    /* what calls in it give since it was lost, until it is retained again */
    CUresult lost;
};

struct fake_stream {
    struct fake_stream *next;
    CUdevice device;
    unsigned flags;
    int capture;
    int dead;
};

/* What cuKernelSetAttribute allowed on a device; forgotten when its context is reset. */
struct fake_raised {
    unsigned epoch;
    /* of dynamic shared memory; 0 where nobody asked for more than there is anyway */
    int shared_bytes;
    int non_portable_cluster;
    /* percent of the L1 cache that is to be shared memory, plus 1; 0 where nobody asked */
    int carveout;
};

struct fake_kernel {
    struct fake_library *library;
    const struct cubin_kernel *code;
    struct fake_raised raised[FAKE_DEVICES_MAX];
};

/* What cuKernelGetFunction gives: one device's function, valid until its context is reset. */
struct fake_function_handle {
    struct fake_kernel *kernel;
    CUdevice device;
    unsigned epoch;
};

struct fake_library {
    struct fake_library *next;
    int dead;
    /* of a module of HIP's, the device that holds it; -1 where every device does */
    CUdevice device;
    struct cubin cubin;
    struct fake_kernel kernel[CUBIN_KERNELS_MAX];
    struct fake_function_handle function[CUBIN_KERNELS_MAX][FAKE_DEVICES_MAX];
};

struct fake_block {
    struct fake_block *next;
    CUdeviceptr address;
    size_t bytes;
    CUdevice device;
    unsigned char *content;
    /* of pinned host memory: where devices reach it */
    CUdeviceptr view;
};

struct fake_launch_attr {
    int id;
    unsigned char value[64];
};

/* One launch, as the fixture reads it; tests/fakecuda/driver.py has the same layout. */
struct fake_launch_record {
    char symbol[CUBIN_SYMBOL_MAX];
    CUkernel kernel;
    uint64_t stream;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    int32_t carveout;
    int32_t device;
    uint32_t params;
    uint32_t param_bytes;
    uint16_t offsets[CUBIN_PARAMS_MAX];
    uint16_t sizes[CUBIN_PARAMS_MAX];
    unsigned char bytes[FAKE_PARAM_BYTES_MAX];
    uint32_t attrs;
    struct fake_launch_attr attr[FAKE_ATTRS_MAX];
};

/* what a launch was asked for, once its handles are resolved */
struct fake_request {
    struct fake_kernel *kernel;
    CUdevice device;
    const CUlaunchConfig *config;
    void **params;
    void **extra;
};

/* Says what is wrong with an address that a launch on a stream is handed, in words that follow "is", or NULL. */
typedef const char *fake_watch(CUdeviceptr address, CUdevice device, uint64_t stream);

struct fake_state {
    int initialised;
    int forked;
    int driver_version;
    int devices;
    unsigned capability[FAKE_DEVICES_MAX];
    /* 0: as large as an H200 */
    int multiprocessors[FAKE_DEVICES_MAX];
    size_t memory_bytes[FAKE_DEVICES_MAX];
    struct fake_context context[FAKE_DEVICES_MAX];
    /* a thread whose context stack is of another generation starts over with an empty one */
    unsigned generation;
    CUresult sticky;
    struct fake_stream *streams;
    struct fake_library *libraries;
    struct fake_block *blocks;
    CUdeviceptr next_address[FAKE_DEVICES_MAX];
    uint64_t launches;
    struct fake_launch_record *launch;
};

extern struct fake_state fake;

/* Enter a driver call: count it, spin, wait, fail as scripted. On CUDA_SUCCESS the lock is held. */
CUresult fake_enter(enum fake_function function);

/* Leave it: log the code and unlock. */
CUresult fake_leave(enum fake_function function, CUresult code);

void fake_lock(void);
void fake_unlock(void);

/* Names of functions, and their numbers: -1 for one that the fake does not have. */
extern const char *const fake_function_names[FN_COUNT];
int fake_function_of(const char *name);

/* Count a call, and give the code that was scripted for it. */
CUresult fake_scripted(enum fake_function function);

/* Script failures: "name:call:code", joined by semicolons; or forget them and all counts. */
void fake_script_text(const char *text);
void fake_script_clear(void);

#define ENTER(name)                                   \
    do {                                              \
        CUresult refused = fake_enter(FN_##name);     \
        if (refused != CUDA_SUCCESS)                  \
            return refused;                           \
    } while (0)
#define LEAVE(name, code) return fake_leave(FN_##name, (code))

/* Note something that a right caller never does, and give `code` back. */
CUresult fake_violation(CUresult code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What an entry point of an older ABI does. */
CUresult fake_trap(const char *name);

/* The context on top of this thread's stack, or NULL. */
struct fake_context *fake_current(void);

/* Find a handle among the live ones without looking through it. */
struct fake_kernel *fake_find_kernel(const void *handle);
struct fake_function_handle *fake_find_function(const void *handle);
struct fake_stream *fake_find_stream(CUstream stream);
struct fake_block *fake_find_block(CUdeviceptr address);

/* Whether any stream is being captured, and what a call does that no capture survives. */
int fake_capturing(void);
CUresult fake_break_capture(const char *call);

int fake_shared_optin(unsigned capability);

/* What is allowed on a device in the context that it has now. */
struct fake_raised *fake_raised(struct fake_kernel *kernel, CUdevice device);

/* Copy the arguments of a launch into its record, and check them. */
CUresult fake_read_params(const struct fake_request *request, struct fake_launch_record *record);

/* What is wrong with a tensor map that a launch is handed, in words that follow "is", or NULL; and its address. */
const char *fake_check_tensor_map(const void *bytes, CUdeviceptr *address);

#endif
