#include "launch/launch.h"

#include "launch/pack.h"

bool nj_launch_scratch(const nj_scratch *scratch, const nj_launch_state *launch, int64_t *bytes)
{
    *bytes = (int64_t)scratch->bytes;
    for (int i = 0; i < 3; i++) {
        if (__builtin_mul_overflow(*bytes, (int64_t)launch->grid[i], bytes)) {
            return false;
        }
    }
    return *bytes <= INT64_MAX - (int64_t)scratch->align;
}

static nj_outcome enqueue(const nj_runnable *runnable, nj_launch_state *launch)
{
    /* cuLaunchKernel accepts a CUkernel and uses its function in the current context; the handle survives a device reset */
    CUfunction function = (CUfunction)runnable->function->handle;
    const unsigned int *grid = launch->grid;
    if (runnable->attribute_count == 0) {
        return NJ_TRY(cuLaunchKernel, function, grid[0], grid[1], grid[2], runnable->block_threads, 1, 1,
                      runnable->shared_bytes, launch->stream, launch->params, NULL);
    }
    CUlaunchConfig config = {
        .gridDimX = grid[0],
        .gridDimY = grid[1],
        .gridDimZ = grid[2],
        .blockDimX = runnable->block_threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = runnable->shared_bytes,
        .hStream = launch->stream,
        .attrs = (CUlaunchAttribute *)runnable->attributes,
        .numAttrs = runnable->attribute_count,
    };
    return NJ_TRY(cuLaunchKernelEx, &config, function, launch->params, NULL);
}

static nj_outcome raise_limits(const nj_runnable *runnable, bool lost)
{
    return nj_function_raise(runnable->function, runnable->device, runnable->shared_bytes, runnable->num_ctas, lost);
}

typedef struct {
    const nj_runnable *runnable;
    nj_launch_state *launch;
} enqueuing;

static nj_outcome prepare_and_enqueue(void *facts)
{
    const nj_runnable *runnable = ((enqueuing *)facts)->runnable;
    bool lost = runnable->limited && nj_function_has_lost(runnable->function, runnable->device);
    nj_outcome outcome = lost ? raise_limits(runnable, false) : NJ_SUCCESS;
    bool pushed;
    if (outcome.call == NULL) {
        outcome = nj_context_enter(runnable->device, &pushed);
    }
    if (outcome.call == NULL) {
        outcome = enqueue(runnable, ((enqueuing *)facts)->launch);
        nj_context_leave(pushed);
    }
    return outcome;
}

/* Raises the limits and launches once more, if the error code may mean that they are not raised. This happens when another library resets
 * the device and retains its context again before nojit's next call: no call then fails for the lost context, but the new context lacks
 * the raised limits. If the device is reset during the retry, the error says that the context is lost. */
static __attribute__((noinline, cold)) nj_outcome enqueue_anew(enqueuing *facts, nj_outcome failed)
{
    bool beyond = failed.code == CUDA_ERROR_INVALID_VALUE || failed.code == CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (!facts->runnable->limited || !beyond) {
        return failed;
    }
    nj_outcome outcome = raise_limits(facts->runnable, true);
    return outcome.call == NULL ? prepare_and_enqueue(facts) : outcome;
}

bool nj_launch_enqueue(const nj_runnable *runnable, nj_launch_state *launch, nj_error *error)
{
    enqueuing facts = {runnable, launch};
    nj_outcome outcome = nj_on_device(runnable->device, prepare_and_enqueue, &facts);
    return outcome.call == NULL || nj_outcome_good(enqueue_anew(&facts, outcome), error);
}

bool nj_launch_run(const nj_runnable *runnable, const nj_arguments *arguments, nj_launch_state *launch, nj_error *error)
{
    return nj_launch_pack(runnable, arguments, launch, error) && nj_launch_enqueue(runnable, launch, error);
}
