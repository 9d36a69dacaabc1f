/* Enqueues plans that need scratch memory. */
#include "api/plan.h"

/* The scratch memory of one launch, while it is allocated. */
typedef struct {
    const nj_plan *plan;
    const nj_launch_state *launch;
    uint64_t given[2]; /* addresses of the global and the profile scratch as allocated; 0 if not */
    size_t bytes;
    int number;
} borrowing;

enum { DRIVER_ALIGN = 256 /* alignment of cuMemAllocAsync */ };

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

/* Allocates one of the two scratch buffers, and writes its aligned address to `launch`. */
static bool borrow(borrowing *it, const nj_scratch *scratch, nj_launch_state *launch, nj_error *error)
{
    const nj_options *options = &it->plan->kernel->bundle->options;
    int64_t size;
    if (!nj_launch_scratch(scratch, launch, &size)) {
        return nj_fail(error, NJ_ERROR_MEMORY, nj_format("%llu bytes for each block", (unsigned long long)scratch->bytes).text,
                       "expected a grid whose scratch memory has fewer than 2^63 bytes");
    }
    it->bytes = (size_t)size;
    if (options->allocate != NULL) {
        if (options->allocate(options->user, it->bytes, (size_t)scratch->align, it->plan->it.ordinal, launch->stream, &it->given[it->number]) != 0) {
            it->given[it->number] = 0;
            return nj_fail(error, NJ_ERROR_MEMORY, "", "expected nj_options.allocate to give %zu bytes of scratch memory", it->bytes);
        }
        launch->scratch_address[it->number] = it->given[it->number];
        return check_given(it, scratch->align, error);
    }
    /* over-allocates, so that the address can be rounded up */
    it->bytes += scratch->align > DRIVER_ALIGN ? (size_t)scratch->align : 0;
    if (!nj_outcome_good(nj_on_device(it->plan->it.device, allocate_there, it), error)) {
        return false;
    }
    launch->scratch_address[it->number] = (it->given[it->number] + scratch->align - 1) & -scratch->align;
    return true;
}

/* Frees a scratch buffer in stream order, after the kernel. */
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

bool nj_plan_enqueue_with_scratch(const nj_plan *plan, nj_launch_state *launch, nj_error *error)
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
