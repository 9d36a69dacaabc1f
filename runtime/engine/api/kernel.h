/* The handle of a kernel, and its state on each device. */
#ifndef NOJIT_API_KERNEL_H
#define NOJIT_API_KERNEL_H

#include "api/bundle.h"
#include "driver/driver.h"
#include "launch/plan_cache.h"
#include "select/spec.h"

/* The state of a kernel on one device. */
typedef struct {
    nj_spec spec;
    nj_plan_cache plans; /* plans by key; writers hold the kernel's lock */
} nj_kernel_device;

/* The configs of a kernel in the form that `nj_kernel_config` returns. */
typedef struct nj_kernel_configs nj_kernel_configs;

struct nj_kernel {
    nj_bundle *bundle;
    size_t number;
    const char *name;
    nj_section_bytes section;
    nj_placement placement;
    nj_table table;
    nj_ids *ids;
    char *texts; /* owns `names`, each NUL-terminated */
    size_t param_count, option_count;
    const char **names; /* names of params, then of options */
    nj_span *options;
    pthread_mutex_t lock; /* held while plans are added */
    _Atomic(nj_kernel_device *) devices[NJ_DEVICES_MAX];
    nj_plan **plans; /* for each row, a linked list of its plans, one per device */
    _Atomic(nj_kernel_configs *) *configs; /* NULL until first requested; a pointer, since `nj_kernel_config` takes a const kernel */
};

/* Closes a kernel and its plans; NULL is fine. */
void nj_kernel_close(nj_kernel *kernel);

/* Frees the copies of configs that `nj_kernel_config` returns. */
void nj_kernel_close_configs(nj_kernel *kernel);

/* Returns the kernel's state on a device; the first call creates it. Replaces NJ_CURRENT_DEVICE in `device` by an ordinal. NULL with
 * `error` filled. */
nj_kernel_device *nj_kernel_on(nj_kernel *kernel, int *device, nj_error *error);

/* Prepends the kernel and its bundle to an error's place. Returns false. */
bool nj_within_kernel(const nj_kernel *kernel, nj_error *error);

/* Fills the error for an index that is not below `count`; `what` names the items. Returns NJ_ERROR_ARGUMENT; `error` may be NULL. */
nj_code nj_refuse_number(const nj_kernel *kernel, size_t number, size_t count, const char *what, nj_error *error);

/* Prepends the argument's name, if the error has only its number, and then the kernel to an error's place. Returns false. */
bool nj_within_argument(const nj_kernel *kernel, nj_error *error);

#endif
