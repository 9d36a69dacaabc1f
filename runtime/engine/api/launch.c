#include "api/call.h"

#include "base/sized.h"
#include "driver/library.h"
#include "driver/query.h"

#include <stdlib.h>

bool nj_setup_read(const nj_launch_setup *setup, nj_launch_setup *read, nj_error *error)
{
    static const nj_sized sized = {"nj_launch_setup", sizeof *setup, NJ_END_OF(nj_launch_setup, grid), -1};
    *read = (nj_launch_setup)NJ_LAUNCH_SETUP_INIT;
    if (setup != NULL && !nj_sized_take(&sized, setup, read, error)) {
        return false;
    }
    return nj_find_device(read->device, &read->device, error);
}

/* Adds a plan under the key of a call. */
static bool publish(nj_kernel *kernel, nj_kernel_device *on, const nj_key *key, nj_plan *plan, nj_error *error)
{
    bool taken;
    pthread_mutex_lock(&kernel->lock);
    bool done = nj_cache_publish(&on->plans, key, plan, &taken);
    pthread_mutex_unlock(&kernel->lock);
    return done || nj_no_memory(error);
}

/* Selects the variant for a call that has no plan yet. Not inline: nearly all calls have one. */
static __attribute__((noinline)) nj_plan *resolve(nj_kernel *kernel, nj_kernel_device *on, const nj_given_call *given, nj_bound_call *call,
                                                  int device, nj_error *error)
{
    size_t row;
    nj_key key;
    if (!nj_select_row(kernel, on, call, &row, error)) {
        nj_name_argument(kernel, error);
        return NULL;
    }
    nj_plan *plan = nj_plan_of(kernel, row, device, error);
    /* the values of constexprs may have got numbers since */
    if (plan != NULL && nj_bind_call(kernel, given, call, error)) {
        nj_arguments arguments = nj_call_arguments(call);
        if (nj_spec_key(&on->spec, call->values, &arguments, &key) && !publish(kernel, on, &key, plan, error)) {
            return NULL;
        }
    }
    return plan;
}

/* Finds the plan for a call that it binds; NULL with `error` filled. */
static nj_plan *find_plan(nj_kernel *kernel, const nj_given_call *given, int device, nj_bound_call *call, nj_error *error)
{
    nj_key key;
    nj_kernel_device *on = nj_kernel_on(kernel, device, error);
    if (on == NULL) {
        nj_within_kernel(kernel, error);
        return NULL;
    }
    if (!nj_bind_call(kernel, given, call, error)) {
        return NULL;
    }
    nj_arguments arguments = nj_call_arguments(call);
    nj_plan *plan = nj_spec_key(&on->spec, call->values, &arguments, &key) ? nj_cache_find(&on->plans, &key) : NULL;
    return plan != NULL ? plan : resolve(kernel, on, given, call, device, error);
}

/* -- scratch memory -- */

/* What is allocated for a launch. */
typedef struct {
    const nj_plan *plan;
    const nj_launch_state *launch;
    uint64_t given[2]; /* as they were allocated; 0 if not */
    size_t bytes;
    int number;
} borrowing;

enum { DRIVER_ALIGN = 256 /* of cuMemAllocAsync */ };

static nj_outcome allocate_there(void *facts)
{
    borrowing *it = facts;
    bool pushed;
    nj_outcome outcome = nj_context_enter(it->plan->it.device, &pushed);
    if (outcome.call == NULL) {
        CUdeviceptr address = 0;
        outcome = NJ_TRY(cuMemAllocAsync, &address, it->bytes, it->launch->stream);
        it->given[it->number] = address;
        nj_context_leave(pushed);
    }
    return outcome;
}

static nj_outcome free_there(void *facts)
{
    borrowing *it = facts;
    bool pushed;
    nj_outcome outcome = nj_context_enter(it->plan->it.device, &pushed);
    if (outcome.call == NULL) {
        outcome = NJ_TRY(cuMemFreeAsync, (CUdeviceptr)it->given[it->number], it->launch->stream);
        nj_context_leave(pushed);
    }
    return outcome;
}

static bool check_given(const borrowing *it, uint64_t align, nj_error *error)
{
    uint64_t address = it->given[it->number];
    return (address != 0 && address % align == 0) ||
           nj_refuse_argument(error, -1, nj_format("%#llx", (unsigned long long)address).text,
                              "expected nj_options.allocate to give memory aligned to %llu bytes", (unsigned long long)align);
}

/* Allocates one kind of scratch, and writes its address. */
static bool borrow(borrowing *it, const nj_scratch *scratch, nj_launch_state *launch, nj_error *error)
{
    const nj_options *options = &it->plan->kernel->bundle->options;
    int64_t size;
    if (!nj_launch_scratch(scratch, launch, &size)) {
        return nj_driver_failed(error, "cuMemAllocAsync", 2, "CUDA_ERROR_OUT_OF_MEMORY",
                                "cannot allocate scratch memory (not a size that memory can have)");
    }
    it->bytes = (size_t)size;
    if (options->allocate != NULL) {
        if (options->allocate(options->user, it->bytes, (size_t)scratch->align, it->plan->it.ordinal, launch->stream, &it->given[it->number]) != 0) {
            it->given[it->number] = 0;
            return nj_driver_failed(error, "nj_options.allocate", 2, "CUDA_ERROR_OUT_OF_MEMORY", "cannot allocate scratch memory");
        }
        launch->scratch_address[it->number] = it->given[it->number];
        return check_given(it, scratch->align, error);
    }
    /* room to align in */
    it->bytes += scratch->align > DRIVER_ALIGN ? (size_t)scratch->align : 0;
    if (!nj_outcome_good(nj_on_device(it->plan->it.device, allocate_there, it), error)) {
        return false;
    }
    launch->scratch_address[it->number] = (it->given[it->number] + scratch->align - 1) & -scratch->align;
    return true;
}

/* Gives memory back in the order of the stream, behind the kernel. */
static bool give_back(borrowing *it, nj_error *error)
{
    const nj_options *options = &it->plan->kernel->bundle->options;
    if (it->given[it->number] == 0) {
        return true;
    }
    if (options->release != NULL) {
        options->release(options->user, it->given[it->number], it->plan->it.ordinal, it->launch->stream);
        return true;
    }
    return nj_outcome_good(nj_on_device(it->plan->it.device, free_there, it), error);
}

static __attribute__((noinline)) bool enqueue_with_scratch(const nj_plan *plan, nj_launch_state *launch, nj_error *error)
{
    const nj_scratch *scratch[2] = {&plan->it.global_scratch, &plan->it.profile_scratch};
    borrowing it = {.plan = plan, .launch = launch};
    bool good = true;
    for (it.number = 0; good && it.number < 2; it.number++) {
        good = scratch[it.number]->bytes == 0 || borrow(&it, scratch[it.number], launch, error);
    }
    good = good && nj_launch_enqueue(&plan->it, launch, error);
    for (it.number = 0; it.number < 2; it.number++) {
        nj_error ignored;
        good = give_back(&it, good ? error : &ignored) && good;
    }
    return good;
}

bool nj_enqueue(const nj_plan *plan, nj_launch_state *launch, nj_error *error)
{
    const nj_options *options = &plan->kernel->bundle->options;
    if (nj_forked()) {
        return nj_refuse_forked(error);
    }
    if (launch->stream == NULL && options->find_stream != NULL) {
        launch->stream = options->find_stream(options->user, plan->it.ordinal);
    }
    bool done = nj_runnable_needs_scratch(&plan->it) ? enqueue_with_scratch(plan, launch, error) : nj_launch_enqueue(&plan->it, launch, error);
    return done || nj_within_kernel(plan->kernel, error);
}

/* -- launches -- */

static bool read_grid(const nj_plan *plan, const nj_launch_setup *setup, const nj_bound_call *call, int64_t grid[3], nj_error *error)
{
    if (setup->grid_rank < 0 || setup->grid_rank > 3) {
        nj_note_argument(error, -1, nj_format("%d", setup->grid_rank).text, "expected a grid_rank of 0 to 3");
        return nj_within_kernel(plan->kernel, error);
    }
    for (int i = 0; i < 3; i++) {
        grid[i] = i < setup->grid_rank ? setup->grid[i] : 1;
    }
    if (setup->grid_rank > 0) {
        return true;
    }
    return nj_compute_grid(plan, call->values, grid, error);
}

static bool launch_call(const nj_plan *plan, const nj_launch_setup *setup, const nj_bound_call *call, nj_error *error)
{
    nj_launch_state launch;
    nj_arguments arguments = nj_call_arguments(call);
    int64_t grid[3];
    if (!read_grid(plan, setup, call, grid, error) || !nj_begin_launch(plan, grid, setup->stream, &launch, error)) {
        return false;
    }
    if (nj_launch_is_empty(&launch)) {
        return true;
    }
    if (!nj_launch_pack(&plan->it, &arguments, &launch, error)) {
        return nj_name_argument(plan->kernel, error);
    }
    return nj_enqueue(plan, &launch, error);
}

nj_code nj_launch(nj_kernel *kernel, const nj_arg *args, size_t arg_count, const nj_keyword *keywords, size_t keyword_count,
                  const nj_launch_setup *setup, nj_error *error)
{
    nj_error own;
    nj_bound_call call;
    const nj_given_call given = {args, arg_count, keywords, keyword_count};
    nj_launch_setup all;
    error = error == NULL ? &own : error;
    nj_plan *plan = nj_setup_read(setup, &all, error) ? find_plan(kernel, &given, all.device, &call, error) : NULL;
    return plan != NULL && launch_call(plan, &all, &call, error) ? NJ_OK : error->code;
}

const nj_plan *nj_prepare(nj_kernel *kernel, const nj_arg *args, size_t arg_count, const nj_keyword *keywords, size_t keyword_count,
                    const nj_launch_setup *setup, nj_error *error)
{
    nj_error own;
    nj_bound_call call;
    const nj_given_call given = {args, arg_count, keywords, keyword_count};
    nj_launch_setup all;
    error = error == NULL ? &own : error;
    return nj_setup_read(setup, &all, error) ? find_plan(kernel, &given, all.device, &call, error) : NULL;
}

nj_code nj_kernel_load(nj_kernel *kernel, int device, nj_error *error)
{
    nj_error own;
    error = error == NULL ? &own : error;
    if (!nj_find_device(device, &device, error) || nj_kernel_on(kernel, device, error) == NULL) {
        nj_within_kernel(kernel, error);
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
