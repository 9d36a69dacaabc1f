/* The handle of a kernel, and its part of each device. */
#ifndef NOJIT_API_KERNEL_H
#define NOJIT_API_KERNEL_H

#include "api/bundle.h"
#include "driver/driver.h"
#include "launch/plan_cache.h"
#include "select/spec.h"

/* A kernel on one device. */
typedef struct {
    nj_spec spec;
    nj_plan_cache plans; /* by key; guarded by the kernel's lock while written */
} nj_kernel_device;

/* The configs of a kernel as callers see them. */
typedef struct nj_kernel_configs nj_kernel_configs;

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
    nj_plan **plans; /* by row: a list of what calls and loads made, one on each device */
    _Atomic(nj_kernel_configs *) *configs; /* apart: questions take a const kernel. Holds NULL until they are asked for */
};

/* Closes a kernel and its plans; NULL is fine. */
void nj_kernel_close(nj_kernel *kernel);

/* Frees what `nj_kernel_config` made. */
void nj_kernel_close_configs(nj_kernel *kernel);

/* Finds the kernel's part of a device, which is made at the first call there. `device` becomes the ordinal that it stands for. NULL with
 * `error` filled. */
nj_kernel_device *nj_kernel_on(nj_kernel *kernel, int *device, nj_error *error);

/* Says that an error is within a kernel. False. */
bool nj_within_kernel(const nj_kernel *kernel, nj_error *error);

/* Refuses a number that is not below a count of the kernel's. Returns NJ_ERROR_ARGUMENT; `error` may be NULL. */
nj_code nj_refuse_number(const nj_kernel *kernel, size_t number, size_t count, const char *what, nj_error *error);

/* Says which argument an error is about, if it has only the number, and that it is within a kernel. False. */
bool nj_within_argument(const nj_kernel *kernel, nj_error *error);

#endif
