/* nojit: open a bundle of compiled Triton kernels, select the variant for a call, load it and launch it. Needs no Python.
 *
 *     nj_error error;
 *     nj_bundle *bundle = nj_bundle_open("acme-1.0-sm_90.nojit", NULL, &error);
 *     nj_kernel *kernel = bundle == NULL ? NULL : nj_bundle_kernel(bundle, "add", &error);
 *     nj_arg args[] = {nj_arg_pointer(x, NJ_DTYPE_FP32), nj_arg_pointer(y, NJ_DTYPE_FP32), nj_arg_pointer(out, NJ_DTYPE_FP32),
 *                      nj_arg_int(n)};
 *     nj_call call = {args, 4, NULL, 0};
 *     nj_launch_setup setup = NJ_LAUNCH_SETUP_INIT;
 *     setup.stream = stream;
 *     if (kernel == NULL || nj_kernel_launch(kernel, &call, &setup, &error) != NJ_OK) {
 *         char text[1024];
 *         nj_error_text(&error, text, sizeof text);
 *         fprintf(stderr, "%s\n", text);
 *     }
 *     nj_bundle_close(bundle);
 *
 * docs/c-api.md explains each step. Link with -lnojit; `nojit config` prints the flags. The library needs libc alone: it opens the
 * driver when a function first needs it, and libzstd.so.1 unless you set nj_options.decompress.
 *
 * -- Functions --
 *
 *     function                   what it does                             waits for              in a capture
 *     nj_version                 number of the library's version          nothing                yes
 *     nj_error_text              write an error in one line               nothing                yes
 *     nj_bundle_open             open a file                              the file               yes
 *     nj_bundle_open_memory      open bytes                               nothing                yes
 *     nj_bundle_close            close it, its kernels and plans          nothing                yes
 *     nj_bundle_about            its name, version, arch, ...             nothing                yes
 *     nj_bundle_kernel_name      name of a kernel by number               nothing                yes
 *     nj_bundle_attachment_name  name of an attachment by number          nothing                yes
 *     nj_bundle_attachment       bytes that the build added               the file, first call   yes
 *     nj_bundle_fit              whether it runs on a device              the driver             yes
 *     nj_bundle_kernel           a kernel by name                         the file, first call   yes
 *     nj_kernel_about            its params, variants and configs         nothing                yes
 *     nj_kernel_param            one of its params                        nothing                yes
 *     nj_kernel_config           one of its configs                       nothing                yes
 *     nj_kernel_load             load every variant on a device           the file, the driver   no
 *     nj_kernel_launch           select a variant and launch it           as load, first call    once loaded
 *     nj_kernel_prepare          select a variant, launch nothing         as load, first call    once loaded
 *     nj_kernel_explain          why each variant serves a call or not    the driver             yes
 *     nj_plan_about              the variant of a plan                    nothing                yes
 *     nj_plan_value              one of the values that it takes          nothing                yes
 *     nj_plan_launch             launch it                                nothing                yes
 *
 * The table leaves out the inline functions, which wait for nothing: nj_version_fits, and the nj_arg_ functions that make an nj_arg.
 *
 * "First call" is the first call with an object, a name or a specialization, and "in a capture" means: while some thread captures a
 * stream into a graph. A launch waits only while the driver's queue is full. Drivers before CUDA 12.3 end a capture when an image is
 * loaded, so call nj_kernel_load before you capture.
 *
 * -- Rules --
 *
 * Errors       A function that can fail takes `error` as its last argument, which may be NULL. It returns NJ_OK or a pointer if it
 *              succeeds, and leaves `*error` as it is. If it fails, it returns another nj_code or NULL, and fills `*error`. The comment
 *              of a function lists its codes without NJ_ERROR_; "reading" stands for FORMAT, INTEGRITY, SYSTEM, MEMORY and NEEDS.
 * Ownership    You close bundles. A bundle owns its kernels and plans, and every string and array that a function returns or writes
 *              into a struct; all of them end with nj_bundle_close. The library copies what you pass, or reads it before the function
 *              returns. The one exception is the memory of nj_bundle_open_memory.
 * Threads      Any thread may call any function at any time, but close a bundle only when no other thread uses it, its kernels or its
 *              plans. The library holds no lock while it calls a callback.
 * Fork         A process that has started the driver cannot use it in a forked child: launches fail there with NJ_ERROR_DRIVER.
 * Pointers     A pointer must not be NULL unless its comment allows it. Strings are UTF-8 and end with a 0.
 * Structs      Initialise a struct that has a member `size` with its _INIT macro, which sets `size` and the defaults. A default is
 *              always 0, except for `device`. The library fills `size` in the structs that it passes to callbacks: nj_claim, nj_event
 *              and nj_reason. A struct with `size` may get new members at its end: the library reads and fills as many bytes as `size`
 *              says, and refuses a `size` that is not set and unknown members that are not 0. The others never change: nj_error has
 *              1,536 bytes, nj_arg 24, nj_keyword 32, nj_call 32, and every enum 4.
 * Limits       A kernel has at most 512 params and options. One call takes at most 256 members of tuples among its arguments, as many among
 *              its constexprs and options, and 16 tensor descriptors. Members of tuples in tuples count. More are refused with ARGUMENT.
 * Stability    While NOJIT_VERSION_MAJOR is 0, each minor version may change anything. From 1.0 on, a minor version may add functions,
 *              codes, enumerators and members of sized structs, and changes nothing else.
 * Names        The name of a function starts with that of its object: nj_bundle_, nj_kernel_, nj_plan_, nj_arg_, nj_error_. Those of
 *              the library itself start with nj_version.
 *
 * -- Drivers --
 *
 * The library uses NVIDIA's driver (libcuda.so.1), or AMD's (libamdhip64.so) if there is none. Each has its own words:
 *
 *     here           CUDA                                   HIP
 *     nj_stream      CUstream, cudaStream_t                 hipStream_t
 *     device         the ordinal that cuDeviceGet takes     the ordinal that hipSetDevice takes
 *     address        CUdeviceptr, a pointer of cudaMalloc   a pointer of hipMalloc
 *     symbol         the name of a CUfunction               the name of a hipFunction_t
 *     driver_code    CUresult                               hipError_t
 *     current        the current context's device           the device of hipGetDevice
 */
#ifndef NOJIT_H
#define NOJIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define NJ_API __attribute__((visibility("default")))
#else
#define NJ_API
#endif

/* == Version ====================================================================================================================== */

#define NOJIT_VERSION_MAJOR 0
#define NOJIT_VERSION_MINOR 1
#define NOJIT_VERSION_NUMBER (NOJIT_VERSION_MAJOR * 1000 + NOJIT_VERSION_MINOR)

/* Returns the NOJIT_VERSION_NUMBER of the library. */
NJ_API int nj_version(void);

/* Tells whether a library serves programs that were compiled with this header: `nj_version_fits(nj_version())`. Programs that link the
 * library need not ask: the loader checks the version of its symbols, NOJIT_0.1. */
static inline int nj_version_fits(int version)
{
    return NOJIT_VERSION_MAJOR == 0 ? version == NOJIT_VERSION_NUMBER
                                    : version / 1000 == NOJIT_VERSION_MAJOR && version >= NOJIT_VERSION_NUMBER;
}

/* == Errors ======================================================================================================================= */

/* The kind of a failure. docs/c-api.md lists the Python exceptions of the same kinds. */
typedef enum nj_code {
    NJ_OK = 0,
    NJ_ERROR_FORMAT = 1,     /* bytes break a rule of the bundle format */
    NJ_ERROR_INTEGRITY = 2,  /* bytes are not those that were built */
    NJ_ERROR_DRIVER = 3,     /* a call of the driver failed, or there is no driver */
    NJ_ERROR_MEMORY = 4,     /* malloc or nj_options.allocate failed, or no memory is as large as asked */
    NJ_ERROR_ARGUMENT = 5,   /* the kernel, or the function, does not take what you pass */
    NJ_ERROR_SYSTEM = 6,     /* a system call failed */
    NJ_ERROR_TRUST = 7,      /* NOJIT_TRUST or nj_options.verify refuses the bundle */
    NJ_ERROR_NO_KERNEL = 8,  /* the bundle has no kernel of that name */
    NJ_ERROR_NO_VARIANT = 9, /* no variant serves the call, or none runs on the device */
    NJ_ERROR_NEEDS = 10,     /* something is not installed: `what` says what to install or set */
} nj_code;

/* Why a function failed. The library fills it; you need not initialise it. Long texts are cut. */
typedef struct nj_error {
    nj_code code;
    int argument;    /* ARGUMENT: the number of the kernel's param, if it is about one; else -1 */
    int driver_code; /* DRIVER: the CUresult or hipError_t, whose name is in `got`; -1 without a driver; else 0 */
    int system_code; /* SYSTEM: the errno; else 0 */
    char call[32];   /* DRIVER, SYSTEM: the function that failed; else empty */
    char rule[32];   /* FORMAT: the rule's name in docs/bundle-format.md; else empty */
    char what[384];  /* what was expected */
    char got[384];   /* what was found; may be empty */
    char where[640]; /* file, kernel, argument; may be empty */
    char reserved[48];
} nj_error;

/* Writes an error in one line: what, got and where.
 *
 *   error     that a function filled
 *   text      gets at most `room` bytes, the 0 at the end included; may be NULL if `room` is 0
 *   Returns   the number of bytes of the whole line without the 0, as snprintf does */
NJ_API size_t nj_error_text(const nj_error *error, char *text, size_t room);

/* == Arguments ==================================================================================================================== */

/* Triton's dtypes. */
typedef enum nj_dtype {
    NJ_DTYPE_NONE = 0, /* unknown: of an address of anything */
    NJ_DTYPE_I1 = 1,
    NJ_DTYPE_U1 = 2,
    NJ_DTYPE_I8 = 3,
    NJ_DTYPE_I16 = 4,
    NJ_DTYPE_I32 = 5,
    NJ_DTYPE_I64 = 6,
    NJ_DTYPE_U8 = 7,
    NJ_DTYPE_U16 = 8,
    NJ_DTYPE_U32 = 9,
    NJ_DTYPE_U64 = 10,
    NJ_DTYPE_FP16 = 11,
    NJ_DTYPE_BF16 = 12,
    NJ_DTYPE_FP32 = 13,
    NJ_DTYPE_FP64 = 14,
    NJ_DTYPE_FP8E4NV = 15,  /* torch.float8_e4m3fn */
    NJ_DTYPE_FP8E5 = 16,    /* torch.float8_e5m2 */
    NJ_DTYPE_FP8E4B8 = 17,  /* torch.float8_e4m3fnuz */
    NJ_DTYPE_FP8E5B16 = 18, /* torch.float8_e5m2fnuz */
    NJ_DTYPE_FP8E4B15 = 19,
} nj_dtype;

#define NJ_DESCRIPTOR_RANK_MAX 5

/* A tensor descriptor, as Triton's TensorDescriptor. Arrays list the outermost dimension first; their entries from `rank` on are 0.
 *
 * `box` and `steps` are additions to Triton's descriptor: with them, a kernel loads every second row of an image, for example. One TMA
 * copy takes box[i] elements of dimension i at distances of steps[i], and writes them to shared memory without gaps. A box has as
 * many elements as the block, and the same last size; box[i] * steps[i] is at most 256, and the last step is 1. Only NVIDIA's GPUs
 * from sm_90 on have TMA. Kernels that were compiled for other GPUs ignore both. */
typedef struct nj_tensor_descriptor {
    size_t size;
    uint64_t address; /* a multiple of 16 */
    nj_dtype dtype;
    uint32_t rank;                           /* 1 to NJ_DESCRIPTOR_RANK_MAX */
    int64_t shape[NJ_DESCRIPTOR_RANK_MAX];   /* in elements */
    int64_t strides[NJ_DESCRIPTOR_RANK_MAX]; /* in elements; the last is 1 */
    uint32_t block[NJ_DESCRIPTOR_RANK_MAX];  /* in elements; all 0: the config's */
    uint16_t box[NJ_DESCRIPTOR_RANK_MAX];    /* what one TMA copy takes, in elements; all 0: the block */
    uint8_t steps[NJ_DESCRIPTOR_RANK_MAX];   /* distance of the elements that it takes, 1 to 8; all 0: 1 */
    uint8_t pads_nan;    /* 1: elements outside the tensor are NaN; 0: they are 0 */
    uint8_t rounds_tf32; /* 1: a copy rounds fp32 to tf32 */
    uint8_t reserved[3]; /* 0 */
} nj_tensor_descriptor;

#define NJ_TENSOR_DESCRIPTOR_INIT {sizeof(nj_tensor_descriptor), 0, NJ_DTYPE_NONE, 0, {0}, {0}, {0}, {0}, {0}, 0, 0, {0}}

/* Kind of an argument. */
typedef enum nj_arg_kind {
    NJ_ARG_DEFAULT = 0, /* not passed: the param's default, or the keyword of its name */
    NJ_ARG_NONE = 1,    /* None */
    NJ_ARG_BOOL = 2,
    NJ_ARG_INT = 3,
    NJ_ARG_UINT = 4,
    NJ_ARG_FLOAT = 5,
    NJ_ARG_POINTER = 6, /* to memory of the device */
    NJ_ARG_TUPLE = 7,
    NJ_ARG_DESCRIPTOR = 8,
    NJ_ARG_TEXT = 9,      /* the last three: constexprs, options, and constants among arguments */
    NJ_ARG_DTYPE = 10,    /* by its name in Triton: "bf16" */
    NJ_ARG_FUNCTION = 11, /* by its qualified name: "package.module.function" */
} nj_arg_kind;

/* One argument. The nj_arg_ functions make it. Items, descriptors and texts are yours, and live until the call returns. */
typedef struct nj_arg {
    nj_arg_kind kind;
    nj_dtype dtype; /* POINTER; else NONE */
    union {
        int64_t integer;            /* INT; BOOL: 0 or 1 */
        uint64_t unsigned_integer;  /* UINT */
        double number;              /* FLOAT */
        uint64_t address;           /* POINTER */
        const struct nj_arg *items; /* TUPLE: `count` of them */
        const nj_tensor_descriptor *descriptor; /* DESCRIPTOR */
        const char *text;           /* TEXT, DTYPE, FUNCTION */
    };
    size_t count; /* TUPLE; else 0 */
} nj_arg;

/* An argument that is passed by name: a constexpr, an option of the launch such as num_warps, or any other param. */
typedef struct nj_keyword {
    const char *name;
    nj_arg value;
} nj_keyword;

/* The arguments of a call, as in `kernel[grid](*args, **keywords)` in Python: params by place, and params, constexprs and options
 * by name. Both arrays are yours, and live until the function returns; they may be NULL if their count is 0. */
typedef struct nj_call {
    const nj_arg *args; /* of param 0, 1, ... */
    size_t arg_count;   /* at most `param_count` */
    const nj_keyword *keywords;
    size_t keyword_count;
} nj_call;

/* Makes an argument of a kind, whose value is 0. */
static inline nj_arg nj_arg_of(nj_arg_kind kind)
{
    nj_arg arg = {kind, NJ_DTYPE_NONE, {0}, 0};
    return arg;
}

/* Leaves a param to its default, or to the keyword of its name. */
static inline nj_arg nj_arg_default(void)
{
    return nj_arg_of(NJ_ARG_DEFAULT);
}

static inline nj_arg nj_arg_none(void)
{
    return nj_arg_of(NJ_ARG_NONE);
}

static inline nj_arg nj_arg_bool(int truth)
{
    nj_arg arg = nj_arg_of(NJ_ARG_BOOL);
    arg.integer = truth != 0;
    return arg;
}

static inline nj_arg nj_arg_int(int64_t integer)
{
    nj_arg arg = nj_arg_of(NJ_ARG_INT);
    arg.integer = integer;
    return arg;
}

static inline nj_arg nj_arg_uint(uint64_t unsigned_integer)
{
    nj_arg arg = nj_arg_of(NJ_ARG_UINT);
    arg.unsigned_integer = unsigned_integer;
    return arg;
}

static inline nj_arg nj_arg_float(double number)
{
    nj_arg arg = nj_arg_of(NJ_ARG_FLOAT);
    arg.number = number;
    return arg;
}

/* `address` is in memory of the device. Its dtype and its alignment take part in the selection. */
static inline nj_arg nj_arg_pointer(uint64_t address, nj_dtype dtype)
{
    nj_arg arg = nj_arg_of(NJ_ARG_POINTER);
    arg.address = address;
    arg.dtype = dtype;
    return arg;
}

static inline nj_arg nj_arg_tuple(const nj_arg *items, size_t count)
{
    nj_arg arg = nj_arg_of(NJ_ARG_TUPLE);
    arg.items = items;
    arg.count = count;
    return arg;
}

static inline nj_arg nj_arg_descriptor(const nj_tensor_descriptor *descriptor)
{
    nj_arg arg = nj_arg_of(NJ_ARG_DESCRIPTOR);
    arg.descriptor = descriptor;
    return arg;
}

/* A string as a constexpr. */
static inline nj_arg nj_arg_text(const char *text)
{
    nj_arg arg = nj_arg_of(NJ_ARG_TEXT);
    arg.text = text;
    return arg;
}

/* A dtype as a constexpr, by its name in Triton: "bf16". */
static inline nj_arg nj_arg_dtype(const char *name)
{
    nj_arg arg = nj_arg_of(NJ_ARG_DTYPE);
    arg.text = name;
    return arg;
}

/* A function as a constexpr, by its qualified name: "package.module.function". */
static inline nj_arg nj_arg_function(const char *name)
{
    nj_arg arg = nj_arg_of(NJ_ARG_FUNCTION);
    arg.text = name;
    return arg;
}

/* == Bundles ====================================================================================================================== */

/* An open bundle. It keeps the file open: a rebuild that renames a new file over it does no harm. */
typedef struct nj_bundle nj_bundle;

/* A kernel of a bundle. */
typedef struct nj_kernel nj_kernel;

/* A variant on a device, ready to launch without selection. */
typedef struct nj_plan nj_plan;

/* A stream of a device. NULL is the driver's legacy default stream. With nj_options.find_stream, NULL is the stream that this returns,
 * and CUDA's default stream is CU_STREAM_LEGACY; HIP's is NULL alone, so that find_stream has to return NULL for it. */
typedef void *nj_stream;

/* A device is its ordinal in the driver, from 0 to 63. This stands for the current device, or for device 0 if there is none. */
#define NJ_CURRENT_DEVICE (-1)

/* Argument of `nj_options.verify`. Valid until the callback returns. */
typedef struct nj_claim {
    size_t size;
    const char *path;          /* of the bundle; NULL for one in memory */
    const char *digest;        /* SHA-256 of its index in hex, which pins every other byte */
    const void *statement;     /* the signed statement beside the bundle (docs/trust.md); NULL if there is none */
    size_t statement_bytes;
} nj_claim;

/* Kind of a timed event. */
typedef enum nj_event_kind {
    NJ_EVENT_OPEN = 1, /* a bundle was opened */
    NJ_EVENT_LOAD = 2, /* the image of a variant was loaded into the driver */
    NJ_EVENT_PLAN = 3, /* the plan of a variant was made for a device, NJ_EVENT_LOAD included */
} nj_event_kind;

/* Argument of `nj_options.log`: a timed event. Valid until the callback returns. */
typedef struct nj_event {
    size_t size;
    nj_event_kind kind;
    int device;           /* -1 for OPEN */
    const char *path;     /* of the bundle; NULL for one in memory */
    const char *digest;   /* of the bundle, as in nj_bundle_info */
    const char *kernel;   /* NULL for OPEN */
    size_t variant;       /* 0 for OPEN */
    uint64_t nanoseconds; /* that it took */
} nj_event;

/* Callbacks of a bundle. NULL stands for the default that the comment names.
 *
 * Any thread that uses the bundle may call them, several at a time. A callback may call every function of the library except
 * nj_bundle_close of this bundle. It must not throw, and what it uses lives as long as the bundle. */
typedef struct nj_options {
    size_t size;
    void *user; /* the first argument of each callback */

    /* Judges a bundle before the library parses it. Returns 0 to allow it; else the open fails with NJ_ERROR_TRUST. Afterwards compare
     * the name and version of nj_bundle_about with those of the statement.
     * Default: allow, unless NOJIT_TRUST is "signed". With other values than any and signed, no bundle opens. */
    int (*verify)(void *user, const nj_claim *claim);

    /* Decompresses one zstd frame into `raw`. Returns 0 if it wrote exactly `raw_bytes`; else reading fails with NJ_ERROR_INTEGRITY.
     * Default: libzstd.so.1. */
    int (*decompress)(void *user, const void *frame, size_t frame_bytes, void *raw, size_t raw_bytes);

    /* Allocates scratch memory for one launch, in the order of `stream`. Returns 0 and sets `*address` to a multiple of `align`. If it
     * returns another number, the launch fails with NJ_ERROR_MEMORY; with another address, it fails with NJ_ERROR_ARGUMENT. `release`
     * frees it in the order of `stream` once the launch is enqueued. Set both or neither.
     * Default: cuMemAllocAsync and cuMemFreeAsync, or HIP's. */
    int (*allocate)(void *user, size_t bytes, size_t align, int device, nj_stream stream, uint64_t *address);
    void (*release)(void *user, uint64_t address, int device, nj_stream stream);

    /* Returns the stream for a launch whose stream is NULL.
     * Default: the default stream. */
    nj_stream (*find_stream)(void *user, int device);

    /* Called after each timed event.
     * Default: none. */
    void (*log)(void *user, const nj_event *event);
} nj_options;

#define NJ_OPTIONS_INIT {sizeof(nj_options), NULL, NULL, NULL, NULL, NULL, NULL, NULL}

/* Opens a bundle, and checks its header and index. Variant tables and images are read when a function first needs them.
 *
 *   path      of the file
 *   options   copied; NULL: all defaults
 *   Returns   the bundle, for you to close; NULL on failure
 *   Errors    reading, ARGUMENT, TRUST */
NJ_API nj_bundle *nj_bundle_open(const char *path, const nj_options *options, nj_error *error);

/* Opens a bundle in memory, as nj_bundle_open does a file.
 *
 *   bytes     not copied: they stay in place, unchanged, until nj_bundle_close
 *   size      in bytes
 *   options   copied; NULL: all defaults
 *   Returns   the bundle, for you to close; NULL on failure
 *   Errors    reading, ARGUMENT, TRUST */
NJ_API nj_bundle *nj_bundle_open_memory(const void *bytes, size_t size, const nj_options *options, nj_error *error);

/* Closes a bundle, its kernels and their plans. Launches in flight and captured graphs stay valid: images stay loaded in the driver
 * until the process ends.
 *
 *   bundle    may be NULL; no thread uses it any more */
NJ_API void nj_bundle_close(nj_bundle *bundle);

typedef struct nj_bundle_info {
    size_t size;
    const char *name, *version;
    const char *arch;       /* "sm_90", "gfx942" */
    const char *image_arch; /* "sm_90a", "gfx942" */
    const char *digest;     /* SHA-256 of its index in hex */
    int min_driver;         /* the oldest version whose driver loads every image: 13010 for CUDA 13.1, 6040 for ROCm 6.4 */
    size_t kernel_count;
    size_t attachment_count;
} nj_bundle_info;

#define NJ_BUNDLE_INFO_INIT {sizeof(nj_bundle_info), NULL, NULL, NULL, NULL, NULL, 0, 0, 0}

/* Describes a bundle.
 *
 *   info      filled
 *   Errors    ARGUMENT: info->size */
NJ_API nj_code nj_bundle_about(const nj_bundle *bundle, nj_bundle_info *info, nj_error *error);

/* Names a kernel.
 *
 *   number    in the order of the names
 *   Returns   the name; NULL from `kernel_count` on */
NJ_API const char *nj_bundle_kernel_name(const nj_bundle *bundle, size_t number);

/* Names an attachment: bytes that the build put into the bundle under a name.
 *
 *   number    in the order of the names
 *   Returns   the name; NULL from `attachment_count` on */
NJ_API const char *nj_bundle_attachment_name(const nj_bundle *bundle, size_t number);

/* Reads an attachment, once for all calls.
 *
 *   size      set to the number of bytes on success
 *   Returns   the bytes, which the bundle owns, at the same address each time; NULL on failure
 *   Errors    reading, ARGUMENT: no attachment of that name */
NJ_API const void *nj_bundle_attachment(nj_bundle *bundle, const char *name, size_t *size, nj_error *error);

/* Tells how well a bundle fits a device. Of several bundles, use the first of those with the highest number.
 *
 *   device    an ordinal or NJ_CURRENT_DEVICE
 *   fit       set on success: 0 if the bundle does not run there
 *   Errors    ARGUMENT, DRIVER */
NJ_API nj_code nj_bundle_fit(const nj_bundle *bundle, int device, int *fit, nj_error *error);

/* == Kernels ====================================================================================================================== */

/* Finds a kernel, and reads its variant table the first time.
 *
 *   Returns   the kernel, which the bundle owns, the same one each time; NULL on failure
 *   Errors    reading, NO_KERNEL */
NJ_API nj_kernel *nj_bundle_kernel(nj_bundle *bundle, const char *name, nj_error *error);

typedef struct nj_kernel_info {
    size_t size;
    const char *name;
    size_t param_count; /* of the function, constexprs included */
    size_t variant_count;
    size_t config_count;
} nj_kernel_info;

#define NJ_KERNEL_INFO_INIT {sizeof(nj_kernel_info), NULL, 0, 0, 0}

/* Describes a kernel.
 *
 *   info      filled
 *   Errors    ARGUMENT: info->size */
NJ_API nj_code nj_kernel_about(const nj_kernel *kernel, nj_kernel_info *info, nj_error *error);

typedef struct nj_param_info {
    size_t size;
    const char *name;
    int is_constexpr;
    int has_default; /* a call may leave it out */
} nj_param_info;

#define NJ_PARAM_INFO_INIT {sizeof(nj_param_info), NULL, 0, 0}

/* Describes a param.
 *
 *   number    below `param_count`, in the function's order
 *   info      filled
 *   Errors    ARGUMENT: number, info->size */
NJ_API nj_code nj_kernel_param(const nj_kernel *kernel, size_t number, nj_param_info *info, nj_error *error);

/* One setting of the constexprs and options of a kernel. */
typedef struct nj_config_info {
    size_t size;
    const nj_keyword *settings;
    size_t setting_count;
} nj_config_info;

#define NJ_CONFIG_INFO_INIT {sizeof(nj_config_info), NULL, 0}

/* Describes a config.
 *
 *   number    below `config_count`; the preferred config is 0
 *   info      filled
 *   Errors    ARGUMENT: number, info->size; MEMORY */
NJ_API nj_code nj_kernel_config(const nj_kernel *kernel, size_t number, nj_config_info *info, nj_error *error);

/* Loads the image of every variant into the driver and puts it on a device, so that no launch has to.
 *
 *   device    an ordinal or NJ_CURRENT_DEVICE
 *   Errors    reading, ARGUMENT, DRIVER, NO_VARIANT: the bundle is for other devices */
NJ_API nj_code nj_kernel_load(nj_kernel *kernel, int device, nj_error *error);

/* == Launches ===================================================================================================================== */

/* Where and how large a launch is. */
typedef struct nj_launch_setup {
    size_t size;
    nj_stream stream;     /* of `device`; NULL: what nj_options.find_stream returns */
    const uint32_t *grid; /* x, y and z, in blocks, or in clusters of a variant that has them; NULL: the bundle computes the grid */
    int device;           /* an ordinal or NJ_CURRENT_DEVICE */
    uint32_t reserved;    /* 0 */
} nj_launch_setup;

#define NJ_LAUNCH_SETUP_INIT {sizeof(nj_launch_setup), NULL, NULL, NJ_CURRENT_DEVICE, 0}

/* Selects the variant for a call and enqueues it, as `kernel[grid](*args, **keywords)` does in Python.
 *
 * The first call of a specialization selects the variant and loads its image. Each later call takes no lock, opens nothing, and
 * allocates nothing but the scratch memory that some kernels need. Tensor descriptors are the exception: the plan encodes each new
 * one, under a lock and in memory that it keeps. A specialization is what decides the variant: the arguments' types, whether they are 1 or
 * multiples of 16, constexprs, options, and what the bundle's conditions and tuning make of the values. A kernel keeps 65,536 of them
 * for each device; calls of any other select anew.
 *
 *   setup     NULL: the defaults of NJ_LAUNCH_SETUP_INIT. A grid with a 0 launches nothing.
 *   Errors    reading, ARGUMENT, DRIVER, NO_VARIANT */
NJ_API nj_code nj_kernel_launch(nj_kernel *kernel, const nj_call *call, const nj_launch_setup *setup, nj_error *error);

/* == Plans ======================================================================================================================== */

/* Selects the variant for a call and loads its image, as nj_kernel_launch does, and enqueues nothing.
 *
 *   device    an ordinal or NJ_CURRENT_DEVICE
 *   Returns   the plan, which the bundle owns: the same one for all calls that this variant serves on the device; NULL on failure
 *   Errors    reading, ARGUMENT, DRIVER, NO_VARIANT */
NJ_API const nj_plan *nj_kernel_prepare(nj_kernel *kernel, const nj_call *call, int device, nj_error *error);

typedef struct nj_plan_info {
    size_t size;
    const char *symbol; /* of the compiled kernel */
    size_t variant;     /* below `variant_count` */
    size_t config;      /* its number in nj_kernel_config */
    int device;
    uint32_t num_warps, num_ctas, shared_bytes, registers; /* shared_bytes of a block, registers of a thread */
    size_t value_count; /* values that a launch takes */
} nj_plan_info;

#define NJ_PLAN_INFO_INIT {sizeof(nj_plan_info), NULL, 0, 0, 0, 0, 0, 0, 0, 0}

/* Describes a plan.
 *
 *   info      filled
 *   Errors    ARGUMENT: info->size */
NJ_API nj_code nj_plan_about(const nj_plan *plan, nj_plan_info *info, nj_error *error);

/* Description of one entry of `values` of nj_plan_launch. */
typedef struct nj_plan_value_info {
    size_t size;
    const char *name; /* of a param, or of a member of a tuple: "x.1" */
    const char *type; /* as Triton spells it: "*fp16", "i32", "fp32", "tensordesc<fp16[128,64]>" */
    nj_arg_kind kind; /* of that type; NONE: None or a constant, for which a launch reads nothing */
    nj_dtype dtype;   /* of the number, or of what the pointer or descriptor points to; else NONE */
    size_t bytes;     /* that a launch reads; 0: it may be passed as NULL */
    int hint;         /* 16: the value is a multiple of 16; 1: it is 1; 0: any value */
} nj_plan_value_info;

#define NJ_PLAN_VALUE_INFO_INIT {sizeof(nj_plan_value_info), NULL, NULL, NJ_ARG_DEFAULT, NJ_DTYPE_NONE, 0, 0}

/* Describes a value.
 *
 *   number    below `value_count`
 *   info      filled
 *   Errors    ARGUMENT: number, info->size */
NJ_API nj_code nj_plan_value(const nj_plan *plan, size_t number, nj_plan_value_info *info, nj_error *error);

/* Enqueues a plan. It selects nothing, and takes locks and allocates only as a later nj_kernel_launch does.
 *
 * The library checks the hints of nj_plan_value. You promise the rest: each pointer is to memory of its dtype on the plan's device, and
 * the variant may serve these values.
 *
 *   values    pointers to the values that nj_plan_value describes, in its order: the params without constexprs, with the members of a
 *             tuple in its place. An address has 8 bytes, an i1 1, an fp16 or bf16 2; a descriptor is an nj_tensor_descriptor.
 *   grid      x, y and z, as in nj_launch_setup; NULL: the bundle computes it
 *   stream    of the plan's device; NULL: what nj_options.find_stream returns
 *   Errors    ARGUMENT, DRIVER, MEMORY */
NJ_API nj_code nj_plan_launch(const nj_plan *plan, const void *const *values, const uint32_t grid[3], nj_stream stream,
                              nj_error *error);

/* == Explanations ================================================================================================================= */

/* Whether a variant serves a call, and why not. */
typedef enum nj_reason_code {
    NJ_REASON_CHOSEN = 0,    /* it is the variant that nj_kernel_launch runs */
    NJ_REASON_SERVES = 1,    /* it serves the call, and another one is preferred */
    NJ_REASON_TYPE = 2,      /* it was compiled for an argument of another type */
    NJ_REASON_CONSTEXPR = 3, /* it was compiled for another constexpr or option */
    NJ_REASON_HINT = 4,      /* it was compiled for an argument that is a multiple of 16, or 1 */
    NJ_REASON_REQUIRES = 5,  /* a condition of its config does not hold */
    NJ_REASON_DERIVED = 6,   /* it was compiled for another value of a derived constexpr */
} nj_reason_code;

/* Argument of a visitor: one variant, and why it serves the call or not. Valid until the visitor returns. */
typedef struct nj_reason {
    size_t size;
    nj_reason_code code;
    size_t variant;
    size_t config;        /* of the variant: its number in nj_kernel_config */
    const char *name;     /* of the param, constexpr or option that decides; NULL if none does */
    const char *expected; /* what the variant was compiled for; may be empty */
    const char *got;      /* what the call passes; may be empty */
} nj_reason;

/* Returns 0 to go on with the next variant, anything else to end the explanation, which still succeeds. */
typedef int (*nj_reason_visitor)(void *user, const nj_reason *reason);

/* Tells for each variant whether it serves a call. Launches nothing and loads no image.
 *
 *   device    an ordinal or NJ_CURRENT_DEVICE
 *   visit     called for variant 0, 1, ... on this thread
 *   user      its first argument
 *   Errors    ARGUMENT, DRIVER, FORMAT, INTEGRITY, MEMORY, NO_VARIANT: the bundle is for other devices */
NJ_API nj_code nj_kernel_explain(nj_kernel *kernel, const nj_call *call, int device, nj_reason_visitor visit, void *user, nj_error *error);

#ifdef __cplusplus
}
#endif

#endif
