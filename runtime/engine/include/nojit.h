/* nojit: open a bundle of compiled Triton kernels, select a variant for a call, load it and launch it. Needs no Python.
 *
 *     nj_error error;
 *     nj_bundle *bundle = nj_bundle_open("acme-1.0-sm_90.nojit", NULL, &error);
 *     nj_kernel *kernel = bundle == NULL ? NULL : nj_bundle_kernel(bundle, "add", &error);
 *     nj_arg args[] = {nj_arg_pointer(x, NJ_DTYPE_FP32), nj_arg_pointer(y, NJ_DTYPE_FP32), nj_arg_pointer(out, NJ_DTYPE_FP32),
 *                      nj_arg_int(n)};
 *     nj_launch_setup setup = NJ_LAUNCH_SETUP_INIT;
 *     setup.stream = stream;
 *     if (kernel == NULL || nj_kernel_launch(kernel, args, 4, NULL, 0, &setup, &error) != NJ_OK) {
 *         char text[1024];
 *         nj_error_text(&error, text, sizeof text);
 *         fprintf(stderr, "%s\n", text);
 *     }
 *     nj_bundle_close(bundle);
 *
 * docs/c-api.md explains each step. Link with -lnojit; `nojit config` prints the flags. The library needs libc alone: it opens the
 * driver at the first launch, and libzstd.so.1 unless nj_options.decompress is set.
 *
 * The driver is NVIDIA's (libcuda.so.1), or AMD's (libamdhip64.so) where that is missing. Each has its own words:
 *
 *     here           CUDA                                   HIP
 *     nj_stream      CUstream, cudaStream_t                 hipStream_t
 *     device         the ordinal that cuDeviceGet takes     the ordinal that hipSetDevice takes
 *     address        CUdeviceptr, a pointer of cudaMalloc   a pointer of hipMalloc
 *     symbol         the name of a CUfunction               the name of a hipFunction_t
 *     driver_code    CUresult                               hipError_t
 *     current        the current context's device           the device of hipGetDevice
 *
 * Conventions:
 * - A function that can fail returns NULL or an nj_code other than NJ_OK, and fills `error`, which may be NULL.
 * - Other pointers must not be NULL where nothing says that they may be.
 * - The name of a function starts with that of its object: nj_bundle_, nj_kernel_, nj_plan_, nj_arg_, nj_error_.
 * - A struct with a member `size` can get more members. Initialise it with its _INIT macro, which sets `size`. The library refuses a
 *   struct whose `size` is smaller than in its first version, or no size at all. Where it reads the struct, members beyond the
 *   caller's size have the value 0, which always means the default, and members that the library does not know have to be 0. Where it
 *   fills the struct, it fills as much as `size` says.
 * - Texts are UTF-8 and end with a 0. Those that a function returns live as long as the object that it was asked of.
 * - Every function may be called from any thread at any time, unless its comment says otherwise. Closing an object ends it: no other
 *   thread may be using it then.
 * - A process that has started the driver and forks cannot use it in the child: launches then fail with NJ_ERROR_DRIVER. */
#ifndef NOJIT_H
#define NOJIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NOJIT_VERSION_MAJOR 0
#define NOJIT_VERSION_MINOR 1
#define NOJIT_VERSION_NUMBER (NOJIT_VERSION_MAJOR * 1000 + NOJIT_VERSION_MINOR)

#if defined(__GNUC__)
#define NJ_API __attribute__((visibility("default")))
#else
#define NJ_API
#endif

/* Returns the NOJIT_VERSION_NUMBER of the library. */
NJ_API int nj_version(void);

/* Returns whether a library of a version serves programs that were compiled with this header: `nj_version_fits(nj_version())`. While
 * the major version is 0, it has to be the same version. The loader checks it for programs that link the library: its symbols have
 * the version NOJIT_0.1. */
static inline int nj_version_fits(int version)
{
    return NOJIT_VERSION_MAJOR == 0 ? version == NOJIT_VERSION_NUMBER
                                    : version / 1000 == NOJIT_VERSION_MAJOR && version >= NOJIT_VERSION_NUMBER;
}

/* A stream of a device. NULL is the default stream. */
typedef void *nj_stream;

/* Stands for the current device, or for device 0 if there is none, wherever the ordinal of a device is passed. */
#define NJ_CURRENT_DEVICE (-1)

/* -- errors -- */

/* Kinds of failure. docs/c-api.md lists the Python exceptions of the same kinds. */
typedef enum nj_code {
    NJ_OK = 0,
    NJ_ERROR_FORMAT = 1,     /* bytes break a rule of the bundle format */
    NJ_ERROR_INTEGRITY = 2,  /* bytes are not those that were built */
    NJ_ERROR_DRIVER = 3,     /* a call of the driver failed, or there is no driver */
    NJ_ERROR_MEMORY = 4,     /* malloc failed */
    NJ_ERROR_ARGUMENT = 5,   /* a call passes what the kernel, or the function, does not take */
    NJ_ERROR_SYSTEM = 6,     /* a system call failed: `system_code` is its errno */
    NJ_ERROR_TRUST = 7,      /* NOJIT_TRUST or nj_options.verify refuses the bundle */
    NJ_ERROR_NO_KERNEL = 8,  /* the bundle has no kernel of that name */
    NJ_ERROR_NO_VARIANT = 9, /* no variant serves the call, or none runs on the device */
    NJ_ERROR_NEEDS = 10,     /* something that is not installed is needed: `what` says what to install or set */
} nj_code;

/* Why a function failed: what was expected, what was found instead, and where. Filled by the library alone, and needs no
 * initialisation. Its size never changes. Texts are cut where they are too long. */
typedef struct nj_error {
    nj_code code;    /* unchanged by a function that succeeds, as all of it */
    int argument;    /* of NJ_ERROR_ARGUMENT: the number of a param of the kernel; -1: `where` says which, or the call as a whole */
    int driver_code; /* of NJ_ERROR_DRIVER: its CUresult or hipError_t, whose name is `got`; -1 without a driver */
    int system_code; /* of NJ_ERROR_SYSTEM: its errno */
    char call[32];   /* of NJ_ERROR_DRIVER and NJ_ERROR_SYSTEM: the function that failed; else empty */
    char rule[32];   /* of NJ_ERROR_FORMAT: the rule's name in docs/bundle-format.md; else empty */
    char what[384];
    char got[384];   /* empty if that says nothing */
    char where[640]; /* empty if there is no such place */
    char reserved[48];
} nj_error;

/* Writes an error that was filled in one line, cut where `room` bytes end, its 0 included. Returns how many bytes all of it has without
 * the 0, as snprintf does; `text` may be NULL if `room` is 0. */
NJ_API size_t nj_error_text(const nj_error *error, char *text, size_t room);

/* -- bundles -- */

/* An open bundle. It keeps the file open, so that a rebuild which renames a new file over it does no harm. */
typedef struct nj_bundle nj_bundle;

/* What `nj_options.verify` judges before anything of the bundle is parsed: its digest, and the statement beside it. Valid during the call
 * alone. */
typedef struct nj_claim {
    size_t size;
    const char *path;          /* of the bundle; NULL for one in memory */
    const char *digest;        /* SHA-256 of its index in hex, which pins every other byte */
    const void *statement;     /* the bytes of the signed statement beside the bundle (docs/trust.md); NULL if there is none */
    size_t statement_bytes;
} nj_claim;

/* Something that took time, for `nj_options.log`. Valid during the call alone. */
typedef struct nj_event {
    size_t size;
    const char *kind;   /* "open" of a bundle, "load" of an image into the driver, "plan" of a variant for a device */
    const char *bundle; /* the first twelve digits of its digest */
    const char *kernel; /* NULL for "open" */
    const char *detail; /* the path of a bundle, or the number of a variant */
    int device;         /* -1 for "open" */
    uint64_t nanoseconds;
} nj_event;

/* How a bundle is read and its kernels are launched. Each callback may be NULL. nojit holds no lock while it calls one, and may call it
 * from any thread that uses the bundle; what a callback uses has to live as long as the bundle. A callback may call nojit, but not
 * close the bundle, and must not throw: it returns to C. */
typedef struct nj_options {
    size_t size;
    void *user; /* passed to each callback */

    /* Returns 0 to allow a bundle; anything else makes opening it fail with NJ_ERROR_TRUST. Once it is open, compare the name and version
     * that `nj_bundle_about` gives with those of the statement. Without it, a bundle is refused if NOJIT_TRUST is "signed". */
    int (*verify)(void *user, const nj_claim *claim);

    /* Decompresses one whole zstd frame into exactly `raw_bytes`. Returns 0 if the frame holds so many; anything else is NJ_ERROR_INTEGRITY.
     * The default is libzstd.so.1. */
    int (*decompress)(void *user, const void *frame, size_t frame_bytes, void *raw, size_t raw_bytes);

    /* Allocates scratch memory of a device for one launch, in the order of `stream`; returns 0 with `*address` set. `release` is called
     * once the launch is enqueued, also in the order of `stream`. Set both or neither. The default is cuMemAllocAsync and cuMemFreeAsync,
     * with HIP hipMallocAsync and hipFreeAsync. */
    int (*allocate)(void *user, size_t bytes, size_t align, int device, nj_stream stream, uint64_t *address);
    void (*release)(void *user, uint64_t address, int device, nj_stream stream);

    /* Returns the stream of a launch whose `stream` is NULL. The default is NULL: the default stream. */
    nj_stream (*find_stream)(void *user, int device);

    /* Takes note of something that took time. The default is to tell nobody. */
    void (*log)(void *user, const nj_event *event);
} nj_options;

#define NJ_OPTIONS_INIT {sizeof(nj_options), NULL, NULL, NULL, NULL, NULL, NULL, NULL}

/* Opens a bundle and checks its header and index; tables and images are read when they are first needed. `options`, which may be
 * NULL, is copied. NULL on failure. */
NJ_API nj_bundle *nj_bundle_open(const char *path, const nj_options *options, nj_error *error);

/* As `nj_bundle_open`, for a bundle in memory, which has to stay there unchanged until `nj_bundle_close`. */
NJ_API nj_bundle *nj_bundle_open_memory(const void *bytes, size_t size, const nj_options *options, nj_error *error);

/* Closes a bundle, its kernels and their plans; NULL is fine. Images stay loaded in the driver until the process ends, so that kernels
 * in flight and captured graphs stay valid. */
NJ_API void nj_bundle_close(nj_bundle *bundle);

typedef struct nj_bundle_info {
    size_t size;
    const char *name, *version;
    const char *arch;       /* "sm_90", "gfx942" */
    const char *image_arch; /* "sm_90a", "gfx942" */
    const char *digest;     /* SHA-256 of its index in hex */
    int min_driver;         /* the least version whose driver loads every image: 13010 for CUDA 13.1, 6040 for ROCm 6.4 */
    size_t kernel_count;
} nj_bundle_info;

#define NJ_BUNDLE_INFO_INIT {sizeof(nj_bundle_info), NULL, NULL, NULL, NULL, NULL, 0, 0}

/* Describes a bundle. */
NJ_API nj_code nj_bundle_about(const nj_bundle *bundle, nj_bundle_info *info, nj_error *error);

/* Returns the name of a kernel, sorted by name; NULL if `number` is not below `kernel_count`. */
NJ_API const char *nj_bundle_kernel_name(const nj_bundle *bundle, size_t number);

/* Reads an attachment: bytes that the build put into the bundle under a name. Sets `*size` to their number. The bytes are kept until
 * the bundle is closed, and a second call returns the same address. NULL on failure. */
NJ_API const void *nj_bundle_attachment(nj_bundle *bundle, const char *name, size_t *size, nj_error *error);

/* Says how well a bundle fits a device: 0 if it does not run there. Of several bundles, take the one of the highest number. */
NJ_API nj_code nj_bundle_fit(const nj_bundle *bundle, int device, int *fit, nj_error *error);

/* -- kernels -- */

/* A kernel of a bundle; lives until the bundle is closed. */
typedef struct nj_kernel nj_kernel;

/* Reads and checks a kernel's variant table; a second call returns the same object. NULL on failure. */
NJ_API nj_kernel *nj_bundle_kernel(nj_bundle *bundle, const char *name, nj_error *error);

/* Triton's dtypes. */
typedef enum nj_dtype {
    NJ_DTYPE_NONE = 0, /* of an address of anything */
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
    NJ_DTYPE_FP8E4NV = 15, /* torch.float8_e4m3fn */
    NJ_DTYPE_FP8E5 = 16,   /* torch.float8_e5m2 */
    NJ_DTYPE_FP8E4B8 = 17, /* torch.float8_e4m3fnuz */
    NJ_DTYPE_FP8E5B16 = 18, /* torch.float8_e5m2fnuz */
    NJ_DTYPE_FP8E4B15 = 19,
    NJ_DTYPE_COUNT /* grows with the list */
} nj_dtype;

/* What an argument is. */
typedef enum nj_arg_kind {
    NJ_ARG_DEFAULT = 0, /* not passed: the param's default, or what is passed by name */
    NJ_ARG_NONE = 1,    /* None */
    NJ_ARG_BOOL = 2,
    NJ_ARG_INT = 3,
    NJ_ARG_UINT = 4,
    NJ_ARG_FLOAT = 5,
    NJ_ARG_POINTER = 6, /* to memory of the device */
    NJ_ARG_TUPLE = 7,
    NJ_ARG_DESCRIPTOR = 8, /* of a tensor, for the copy engine */
    NJ_ARG_TEXT = 9,       /* the last three are values of constexprs and options */
    NJ_ARG_DTYPE = 10,     /* by its name in Triton: "bf16" */
    NJ_ARG_FUNCTION = 11,  /* by its qualified name: "package.module.function" */
} nj_arg_kind;

#define NJ_DESCRIPTOR_RANK_MAX 5

/* A tensor descriptor, as Triton's TensorDescriptor. */
typedef struct nj_tensor_descriptor {
    size_t size;
    uint64_t address; /* aligned to 16 bytes */
    nj_dtype dtype;
    uint32_t rank;
    int64_t shape[NJ_DESCRIPTOR_RANK_MAX];   /* in elements, outermost dimension first, as all that follows */
    int64_t strides[NJ_DESCRIPTOR_RANK_MAX]; /* in elements; the last is 1 */
    uint32_t block[NJ_DESCRIPTOR_RANK_MAX];  /* zeros leave it to the config */
    uint16_t box[NJ_DESCRIPTOR_RANK_MAX];    /* what a copy takes instead of the block, as many elements; zeros: the block */
    uint8_t steps[NJ_DESCRIPTOR_RANK_MAX];   /* how far apart these elements lie; zeros: next to one another */
    uint8_t pads_nan;    /* 1: elements outside the tensor are NaN; 0: they are 0 */
    uint8_t rounds_tf32; /* 1: a copy rounds fp32 to tf32 */
    uint8_t reserved[3]; /* 0 */
} nj_tensor_descriptor;

#define NJ_TENSOR_DESCRIPTOR_INIT {sizeof(nj_tensor_descriptor), 0, NJ_DTYPE_NONE, 0, {0}, {0}, {0}, {0}, {0}, 0, 0, {0}}

/* One argument. The functions below make them. */
typedef struct nj_arg {
    uint32_t kind;  /* an nj_arg_kind */
    uint32_t dtype; /* of NJ_ARG_POINTER: an nj_dtype */
    union {
        int64_t integer;            /* of NJ_ARG_INT, and of NJ_ARG_BOOL 0 or 1 */
        uint64_t natural;           /* of NJ_ARG_UINT */
        double number;              /* of NJ_ARG_FLOAT */
        uint64_t address;           /* of NJ_ARG_POINTER */
        const struct nj_arg *items; /* of NJ_ARG_TUPLE, as many as `count` */
        const nj_tensor_descriptor *descriptor;
        const char *text;           /* of the last three kinds */
    };
    size_t count; /* of NJ_ARG_TUPLE */
} nj_arg;

/* A constexpr, an option of the launch (such as num_warps) or a param, by its name. */
typedef struct nj_keyword {
    const char *name;
    nj_arg value;
} nj_keyword;

typedef struct nj_kernel_info {
    size_t size;
    const char *name;
    size_t param_count; /* of the function, constexprs included */
    size_t variant_count;
    size_t config_count;
} nj_kernel_info;

#define NJ_KERNEL_INFO_INIT {sizeof(nj_kernel_info), NULL, 0, 0, 0}

/* Describes a kernel. */
NJ_API nj_code nj_kernel_about(const nj_kernel *kernel, nj_kernel_info *info, nj_error *error);

typedef struct nj_param_info {
    size_t size;
    const char *name;
    int is_constexpr;
    int has_default; /* whether a call may leave it out */
} nj_param_info;

#define NJ_PARAM_INFO_INIT {sizeof(nj_param_info), NULL, 0, 0}

/* Describes a param; `number` is below `param_count`. */
NJ_API nj_code nj_kernel_param(const nj_kernel *kernel, size_t number, nj_param_info *info, nj_error *error);

/* One setting of the constexprs and options of a kernel. */
typedef struct nj_config_info {
    size_t size;
    const nj_keyword *settings;
    size_t setting_count;
} nj_config_info;

#define NJ_CONFIG_INFO_INIT {sizeof(nj_config_info), NULL, 0}

/* Describes a config; `number` is below `config_count`. Configs come in order of preference. */
NJ_API nj_code nj_kernel_config(const nj_kernel *kernel, size_t number, nj_config_info *info, nj_error *error);

/* Loads the image of every variant into the driver and puts it on a device, so that no launch has to. */
NJ_API nj_code nj_kernel_load(nj_kernel *kernel, int device, nj_error *error);

/* -- launches -- */

/* Where and how a kernel is launched. */
typedef struct nj_launch_setup {
    size_t size;
    nj_stream stream;  /* of the device; NULL: nj_options.find_stream, or the default stream */
    int device;        /* its ordinal, or NJ_CURRENT_DEVICE */
    int grid_rank;     /* how many numbers of `grid` are set; 0: the bundle computes the grid */
    uint32_t grid[3];  /* in blocks, or in clusters of them; a 0 launches nothing */
    uint32_t reserved; /* 0 */
} nj_launch_setup;

#define NJ_LAUNCH_SETUP_INIT {sizeof(nj_launch_setup), NULL, NJ_CURRENT_DEVICE, 0, {0, 0, 0}, 0}

/* Selects the variant that serves a call and enqueues it, as `kernel[grid](*args, **keywords)` does in Python: `args[i]` is param i, and
 * `keywords` gives params, constexprs and options by name. `setup` may be NULL. Returns as soon as the driver has taken the launch;
 * arguments may be freed then. A specialization that was launched before takes no lock, allocates nothing and opens nothing; in a
 * capture of a stream, only such calls are allowed. A kernel remembers 65,536 specializations on each device, and selects anew for
 * each call of any other. */
NJ_API nj_code nj_kernel_launch(nj_kernel *kernel, const nj_arg *args, size_t arg_count, const nj_keyword *keywords,
                                size_t keyword_count, const nj_launch_setup *setup, nj_error *error);

/* A variant on a device, ready to launch without selection; lives until the bundle is closed. Immutable. */
typedef struct nj_plan nj_plan;

/* Selects and loads the variant that serves a call, as `nj_kernel_launch` does, and enqueues nothing. Of `setup` only `device` counts.
 * Calls that the same variant serves on a device get the same plan. NULL on failure. */
NJ_API const nj_plan *nj_kernel_prepare(nj_kernel *kernel, const nj_arg *args, size_t arg_count, const nj_keyword *keywords,
                                        size_t keyword_count, const nj_launch_setup *setup, nj_error *error);

typedef struct nj_plan_info {
    size_t size;
    const char *symbol; /* of the compiled kernel */
    size_t variant;     /* its number, below `variant_count` of the kernel */
    size_t config;      /* its number in `nj_kernel_config` */
    int device;
    uint32_t num_warps, num_ctas, shared_bytes, registers;
    size_t value_count; /* how many values a launch takes */
} nj_plan_info;

#define NJ_PLAN_INFO_INIT {sizeof(nj_plan_info), NULL, 0, 0, 0, 0, 0, 0, 0, 0}

/* Describes a plan. */
NJ_API nj_code nj_plan_about(const nj_plan *plan, nj_plan_info *info, nj_error *error);

/* What one entry of `values` of `nj_plan_launch` points to. */
typedef struct nj_plan_value_info {
    size_t size;
    const char *name; /* of a param, or of a member of a tuple: "x.1" */
    const char *type; /* as Triton spells it: "*fp16", "i32", "fp32", "tensordesc<fp16[128,64]>" */
    size_t bytes;     /* that are read; 0 of None and of a constant, for which NULL may be passed */
    int hint;         /* 16: it has to be divisible by 16; 1: it has to be 1; 0: it may be anything */
} nj_plan_value_info;

#define NJ_PLAN_VALUE_INFO_INIT {sizeof(nj_plan_value_info), NULL, NULL, 0, 0}

/* Describes a value; `number` is below `value_count`. */
NJ_API nj_code nj_plan_value(const nj_plan *plan, size_t number, nj_plan_value_info *info, nj_error *error);

/* Enqueues a plan. `values` has one entry for each value of `nj_plan_value`, in its order: the params of the function without
 * constexprs, with the members of tuples in place of the tuple. Each points to a value of that type: an address of 8 bytes, an int of
 * its width, an fp16 or a bf16 of 2 bytes, a float, a double, an i1 of 1 byte, an nj_tensor_descriptor. `grid` is in blocks or clusters;
 * NULL has the bundle compute it.
 *
 * Checked: that what the variant was compiled for, divisible by 16 or equal to 1, still is. The caller promises the rest: that each
 * pointer is to memory of that dtype on the plan's device, and that the variant may serve the call; no other is selected for other
 * sizes. Takes no lock and allocates nothing, but scratch memory where the kernel needs it. */
NJ_API nj_code nj_plan_launch(const nj_plan *plan, const void *const *values, const uint32_t grid[3], nj_stream stream,
                              nj_error *error);

/* -- why -- */

/* Whether a variant serves a call, and why not. */
typedef enum nj_reason_code {
    NJ_REASON_CHOSEN = 0,   /* the variant that `nj_kernel_launch` runs */
    NJ_REASON_SERVES = 1,   /* could serve the call, and another is preferred */
    NJ_REASON_TYPE = 2,     /* compiled for an argument of another type */
    NJ_REASON_CONSTEXPR = 3, /* compiled for another constexpr or option */
    NJ_REASON_HINT = 4,     /* compiled for an argument divisible by 16, or equal to 1 */
    NJ_REASON_REQUIRES = 5, /* its config requires what does not hold */
    NJ_REASON_DERIVED = 6,  /* compiled for another value of a derived constexpr */
} nj_reason_code;

/* Valid during the call of the visitor alone. */
typedef struct nj_reason {
    size_t size;
    nj_reason_code code;
    size_t variant;       /* its number */
    size_t config;        /* of the variant: its number in `nj_kernel_config` */
    const char *name;     /* of the param, constexpr or option that decides; NULL for the first two codes */
    const char *expected; /* what the variant was compiled for */
    const char *got;      /* what the call passes */
} nj_reason;

/* Returns 0 to go on with the next variant; anything else ends the explanation, which still succeeds. */
typedef int (*nj_reason_visitor)(void *user, const nj_reason *reason);

/* Tells the visitor of each variant whether it serves a call, in the order of the table. Launches nothing, and loads no image. */
NJ_API nj_code nj_kernel_explain(nj_kernel *kernel, const nj_arg *args, size_t arg_count, const nj_keyword *keywords,
                                 size_t keyword_count, const nj_launch_setup *setup, nj_reason_visitor visit, void *user, nj_error *error);

/* -- arguments -- */

/* Makes an argument of a kind; its value is 0. */
static inline nj_arg nj_arg_of(nj_arg_kind kind)
{
    nj_arg arg = {(uint32_t)kind, NJ_DTYPE_NONE, {0}, 0};
    return arg;
}

/* A param that is not passed: its default, or what is passed by name. */
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

static inline nj_arg nj_arg_uint(uint64_t natural)
{
    nj_arg arg = nj_arg_of(NJ_ARG_UINT);
    arg.natural = natural;
    return arg;
}

static inline nj_arg nj_arg_float(double number)
{
    nj_arg arg = nj_arg_of(NJ_ARG_FLOAT);
    arg.number = number;
    return arg;
}

/* `address` is that of memory of the device, as an integer. */
static inline nj_arg nj_arg_pointer(uint64_t address, nj_dtype dtype)
{
    nj_arg arg = nj_arg_of(NJ_ARG_POINTER);
    arg.address = address;
    arg.dtype = (uint32_t)dtype;
    return arg;
}

/* Neither `items` nor, below, `descriptor` and texts are copied: they live until the call returns. */
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

/* A text as a constexpr. */
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

#ifdef __cplusplus
}
#endif

#endif
