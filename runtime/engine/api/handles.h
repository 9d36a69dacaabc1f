/* What the handles of nojit.h are. */
#ifndef NOJIT_API_HANDLES_H
#define NOJIT_API_HANDLES_H

#include "bundle/reader.h"
#include "bundle/target.h"
#include "launch/cache.h"
#include "launch/launch.h"
#include "launch/row.h"
#include "launch/tuned.h"

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

/* One entry of the `values` of `nj_plan_launch`. */
typedef struct {
    nj_span type;
    int16_t source, leaf;
    uint8_t bytes;       /* that are read; 0: it is compiled in */
    uint8_t hint;        /* 0, 1 or 16 */
    uint8_t dtype;
    bool is_descriptor;
    nj_value compiled_in; /* where nothing is read: what expressions see */
} nj_plan_item;

/* How a slot of the compiled kernel is filled from `values`. */
typedef struct {
    int16_t item; /* -1: global scratch, -2: profile scratch */
    bool is_part; /* of a descriptor */
} nj_plan_source;

struct nj_plan {
    nj_plan *next; /* of its kernel */
    nj_kernel *kernel;
    nj_runnable it;
    size_t row;
    size_t item_count, hinted_count;
    nj_plan_item *items;
    uint16_t *hinted;        /* the items with a hint */
    nj_plan_source *sources; /* of each slot */
    bool has_descriptors;
    char *texts; /* what the next three lie in */
    const char **item_names, **item_types;
    const char *symbol;
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

/* Refuses a launch whose grid the bundle does not give, or that comes to no int there. False. */
bool nj_refuse_grid(const nj_kernel *kernel, int dimension, nj_error *error);

/* Enqueues with the scratch memory that the plan needs; `launch` is packed but for it. */
bool nj_enqueue(const nj_plan *plan, nj_launch_state *launch, nj_error *error);

/* Fills an argument's number and the kernel's name into an error that has none. False. */
bool nj_name_argument(const nj_kernel *kernel, nj_error *error);

#endif
