/* What the handles of nojit.h are. */
#ifndef NOJIT_API_HANDLES_H
#define NOJIT_API_HANDLES_H

#include "bundle/reader.h"
#include "bundle/target.h"
#include "launch/cache.h"
#include "launch/launch.h"
#include "launch/row.h"
#include "launch/tuned.h"
#include "launch/values.h"

#include <pthread.h>
#include <stdatomic.h>

struct nj_bundle {
    nj_options options;
    char *path; /* NULL for memory */
    nj_reader reader;
    nj_image_arch image_arch;
    int arch;                    /* what ``arch`` stands for in expressions */
    char *texts;                 /* what the next five lie in */
    const char *name, *version, *arch_name, *image_arch_name;
    const char **kernel_names;
    pthread_mutex_t lock;        /* of who adds kernels */
    _Atomic(nj_kernel *) *kernels; /* by number; NULL until they are asked for */
    _Atomic(void *) *attachments;  /* their bytes, by number; likewise */
};

/* A kernel on one device. */
typedef struct {
    nj_spec spec;
    nj_tuned tuned;
    nj_cache plans;               /* by key; guarded by the kernel's lock while written */
} nj_kernel_device;

/* The constexprs and options of a kernel's configs as callers see them. */
typedef struct nj_kernel_settings nj_kernel_settings;

struct nj_kernel {
    nj_bundle *bundle;
    size_t number;
    const char *name;
    nj_section_bytes section;
    nj_placement placement;
    nj_table table;
    nj_ids *ids;
    char *texts; /* what names lie in */
    size_t param_count, option_count;
    const char **names; /* of params, then of options */
    nj_span *options;
    pthread_mutex_t lock; /* of who adds devices and plans */
    _Atomic(nj_kernel_device *) devices[NJ_DEVICES_MAX];
    nj_plan *plans; /* all that `nj_launch` made */
    _Atomic(nj_kernel_settings *) settings; /* NULL until they are asked for */
};

struct nj_plan {
    nj_plan *next; /* of its kernel */
    nj_kernel *kernel;
    nj_runnable it;
    size_t row;
    nj_leaf_values values;
    char *symbol;
    uint32_t num_warps, registers;
};

/* Tells the log of something that began at `began_ns`. */
void nj_tell(const nj_bundle *bundle, const char *kind, const nj_kernel *kernel, const char *detail, int device, uint64_t began_ns);
uint64_t nj_now_ns(void);

/* Asks NOJIT_TRUST and the verifier of the bundle `context` about a digest. False with `error` filled. */
bool nj_bundle_verify(void *context, const char *digest, nj_error *error);

/* Closes a kernel and its plans; NULL is fine. */
void nj_kernel_close(nj_kernel *kernel);

/* Frees what `nj_kernel_config` made. */
void nj_settings_close(nj_kernel *kernel);

/* Frees a plan, which is in no list any more; NULL is fine. */
void nj_plan_free(nj_plan *plan);

/* Says that an error is within a kernel. False. */
bool nj_within_kernel(const nj_kernel *kernel, nj_error *error);

/* Finds the ordinal of a device, which NJ_CURRENT_DEVICE may stand for. False with `error` filled. */
bool nj_find_device(int device, int *ordinal, nj_error *error);

/* Finds the kernel's part of a device, which is made at the first call there; NULL with `error` filled. */
nj_kernel_device *nj_kernel_on(nj_kernel *kernel, int device, nj_error *error);

/* Finds the plan of a row, which is made at the first call; NULL with `error` filled. */
nj_plan *nj_plan_of(nj_kernel *kernel, size_t row, int device, nj_error *error);

/* Computes the grid that the bundle gives, from the values of a call; false with `error` filled if it gives none, or no int. */
bool nj_compute_grid(const nj_plan *plan, const nj_value *values, int64_t grid[3], nj_error *error);

/* Takes the grid and the stream of a launch; false with `error` filled. */
bool nj_begin_launch(const nj_plan *plan, const int64_t grid[3], struct CUstream_st *stream, nj_launch_state *launch, nj_error *error);

/* Enqueues with the scratch memory that the plan needs; `launch` is packed but for it. */
bool nj_enqueue(const nj_plan *plan, nj_launch_state *launch, nj_error *error);

/* Fills an argument's number and the kernel's name into an error that has none. False. */
bool nj_name_argument(const nj_kernel *kernel, nj_error *error);

#endif
