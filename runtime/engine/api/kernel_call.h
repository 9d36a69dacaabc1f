/* A call of a kernel: its arguments bound to the kernel's params and read. */
#ifndef NOJIT_API_KERNEL_CALL_H
#define NOJIT_API_KERNEL_CALL_H

#include "api/kernel.h"

typedef struct {
    const nj_arg *passed[NJ_ARGUMENTS_MAX]; /* by place: params, then options; NULL if not given */
    nj_value values[NJ_ARGUMENTS_MAX];
    nj_value leaves[NJ_LEAVES_MAX];
    nj_descriptor descriptors[NJ_DESCRIPTORS_MAX];
    uint16_t leaf_count, descriptor_count;
    uint16_t item_count; /* members of tuples among constexprs and options */
} nj_bound_call;

/* Reads where and how large a launch is; `setup` may be NULL. False with `error` filled. */
bool nj_setup_read(const nj_launch_setup *setup, nj_launch_setup *read, nj_error *error);

/* Binds and reads. False with `error` filled. */
bool nj_call_bind(nj_kernel *kernel, const nj_call *given, nj_bound_call *call, nj_error *error);

/* Does so for a call on a device, as `nj_kernel_on` finds it; NULL with `error` filled. */
nj_kernel_device *nj_call_begin(nj_kernel *kernel, const nj_call *given, int *device, nj_bound_call *call, nj_error *error);

static inline nj_arguments nj_call_arguments(const nj_bound_call *call)
{
    return (nj_arguments){call->values, call->leaves, call->descriptors};
}

/* The constexprs and options that a call gives, as selection takes them; owned. */
typedef struct {
    nj_constant *constants;
    const nj_constant **given; /* by place; NULL if not given */
    nj_constant *items;        /* of tuples */
} nj_given_constants;

/* Reads them; false with `error` filled. `nj_constants_drop` is due in either case. */
bool nj_constants_read(const nj_kernel *kernel, const nj_bound_call *call, nj_given_constants *made, nj_error *error);
void nj_constants_drop(nj_given_constants *made);

#endif
