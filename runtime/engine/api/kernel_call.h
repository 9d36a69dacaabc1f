/* A call of a kernel: its arguments bound to the kernel's params and read. */
#ifndef NOJIT_API_KERNEL_CALL_H
#define NOJIT_API_KERNEL_CALL_H

#include "api/kernel.h"

typedef struct {
    const nj_arg *passed[NJ_ARGUMENTS_MAX]; /* arguments of params, then of options; NULL if not given */
    nj_value values[NJ_ARGUMENTS_MAX];
    nj_value leaves[NJ_LEAVES_MAX];
    nj_descriptor descriptors[NJ_DESCRIPTORS_MAX];
    uint16_t leaf_count, descriptor_count;
    uint16_t item_count; /* number of tuple members among constexprs and options */
} nj_bound_call;

/* Reads the device, stream and grid of a launch; a NULL `setup` gives the defaults. False with `error` filled. */
bool nj_setup_read(const nj_launch_setup *setup, nj_launch_setup *read, nj_error *error);

/* Binds the arguments of a call to the kernel's params and options, and reads them. False with `error` filled. */
bool nj_call_bind(nj_kernel *kernel, const nj_call *given, nj_bound_call *call, nj_error *error);

/* Binds a call as `nj_call_bind`, and returns the kernel's state on a device as `nj_kernel_on`; NULL with `error` filled. */
nj_kernel_device *nj_call_begin(nj_kernel *kernel, const nj_call *given, int *device, nj_bound_call *call, nj_error *error);

static inline nj_arguments nj_call_arguments(const nj_bound_call *call)
{
    return (nj_arguments){call->values, call->leaves, call->descriptors};
}

/* The constexprs and options that a call gives, as constants for selection; owned. */
typedef struct {
    nj_constant *constants;
    const nj_constant **given; /* constants of params, then of options; NULL if not given */
    nj_constant *items;        /* members of tuples */
} nj_given_constants;

/* Reads the constexprs and options of a call. False with `error` filled. The caller calls `nj_constants_drop` in either case. */
bool nj_constants_read(const nj_kernel *kernel, const nj_bound_call *call, nj_given_constants *made, nj_error *error);
void nj_constants_drop(nj_given_constants *made);

#endif
