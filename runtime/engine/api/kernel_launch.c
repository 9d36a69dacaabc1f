/* Launches a kernel: selects the variant of a call, loads it and enqueues it. */
#include "api/kernel_select.h"
#include "api/plan.h"

#include "launch/loaded_image.h"
#include "launch/pack.h"

#include <stdlib.h>

/* Caches a plan under the key of a call. */
static bool publish(nj_kernel *kernel, nj_kernel_device *on, const nj_key *key, nj_plan *plan, nj_error *error)
{
    bool taken;
    pthread_mutex_lock(&kernel->lock);
    bool done = nj_plan_cache_publish(&on->plans, key, plan, &taken);
    pthread_mutex_unlock(&kernel->lock);
    return done || nj_no_memory(error);
}

/* Selects the variant of a call whose key is not cached. Not inlined, because nearly all keys are. */
static __attribute__((noinline)) nj_plan *resolve(nj_kernel *kernel, nj_kernel_device *on, const nj_call *given, nj_bound_call *call,
                                                  int device, nj_error *error)
{
    size_t row;
    nj_key key;
    if (!nj_select_row(kernel, on, call, &row, error)) {
        nj_within_argument(kernel, error);
        return NULL;
    }
    nj_plan *plan = nj_plan_of(kernel, row, device, error);
    /* bind again, because making the plan may have numbered constants of this call, which changes its key */
    if (plan != NULL && nj_call_bind(kernel, given, call, error)) {
        nj_arguments arguments = nj_call_arguments(call);
        if (nj_spec_key(&on->spec, call->values, &arguments, &key) && !publish(kernel, on, &key, plan, error)) {
            return NULL;
        }
    }
    return plan;
}

/* Binds a call and returns its plan; NULL with `error` filled. */
static nj_plan *find_plan(nj_kernel *kernel, const nj_call *given, int device, nj_bound_call *call, nj_error *error)
{
    nj_key key;
    nj_kernel_device *on = nj_call_begin(kernel, given, &device, call, error);
    if (on == NULL) {
        return NULL;
    }
    nj_arguments arguments = nj_call_arguments(call);
    nj_plan *plan = nj_spec_key(&on->spec, call->values, &arguments, &key) ? nj_plan_cache_find(&on->plans, &key) : NULL;
    return plan != NULL ? plan : resolve(kernel, on, given, call, device, error);
}

/* -- launches -- */

static bool launch_call(const nj_plan *plan, const nj_launch_setup *setup, const nj_bound_call *call, nj_error *error)
{
    nj_launch_state launch;
    nj_arguments arguments = nj_call_arguments(call);
    int64_t grid[3];
    for (int i = 0; setup->grid != NULL && i < 3; i++) {
        grid[i] = setup->grid[i];
    }
    if ((setup->grid == NULL && !nj_plan_grid(plan, call->values, grid, error)) || !nj_plan_begin(plan, grid, setup->stream, &launch, error)) {
        return false;
    }
    if (nj_launch_is_empty(&launch)) {
        return true;
    }
    if (!nj_launch_pack(&plan->it, &arguments, &launch, error)) {
        return nj_within_argument(plan->kernel, error);
    }
    return nj_plan_enqueue(plan, &launch, error);
}

nj_code nj_kernel_launch(nj_kernel *kernel, const nj_call *call, const nj_launch_setup *setup, nj_error *error)
{
    nj_error own;
    nj_bound_call bound;
    nj_launch_setup all;
    error = error == NULL ? &own : error;
    const nj_plan *plan = nj_setup_read(setup, &all, error) ? find_plan(kernel, call, all.device, &bound, error) : NULL;
    return plan != NULL && launch_call(plan, &all, &bound, error) ? NJ_OK : error->code;
}

const nj_plan *nj_kernel_prepare(nj_kernel *kernel, const nj_call *call, int device, nj_error *error)
{
    nj_error own;
    nj_bound_call bound;
    return find_plan(kernel, call, device, &bound, error == NULL ? &own : error);
}

nj_code nj_kernel_load(nj_kernel *kernel, int device, nj_error *error)
{
    nj_error own;
    error = error == NULL ? &own : error;
    if (nj_kernel_on(kernel, &device, error) == NULL) {
        return error->code;
    }
    for (size_t row = 0; row < kernel->table.rows; row++) {
        nj_plan *plan = nj_plan_of(kernel, row, device, error);
        if (plan == NULL || !nj_function_place(plan->it.function, device, error)) {
            return error->code;
        }
    }
    return NJ_OK;
}
