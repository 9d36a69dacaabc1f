/* The launch itself: grid checked, arguments packed, scratch borrowed, kernel enqueued. */
#include "errors.h"
#include "hooks.h"
#include "scratch.h"
#include "stream.h"

#define GRID_X_MAX INT64_C(0x7fffffff)
#define GRID_YZ_MAX INT64_C(65535)

static int check_grid(const nj_plan *plan, const nj_signature *signature, const int64_t grid[3], nj_launch *launch)
{
    const int64_t limits[3] = {GRID_X_MAX / plan->num_ctas, GRID_YZ_MAX, GRID_YZ_MAX};
    for (int i = 0; i < 3; i++) {
        if (grid[i] < 0 || grid[i] > limits[i]) {
            PyObject *argument = PyUnicode_FromFormat("grid[%d]", i);
            PyObject *got = argument == NULL ? NULL : PyUnicode_FromFormat("%lld", (long long)grid[i]);
            nj_refuse(signature->kernel, argument, got, "expected 0 to %lld", (long long)limits[i]);
            Py_XDECREF(argument);
            return -1;
        }
        launch->grid[i] = (unsigned int)grid[i];
    }
    launch->grid[0] *= plan->num_ctas;
    return 0;
}

static nj_outcome enqueue(const nj_plan *plan, nj_launch *launch)
{
    /* a CUkernel stands for the function of whichever context is current, and outlives a reset of it */
    CUfunction function = (CUfunction)plan->function->handle;
    const unsigned int *grid = launch->grid;
    if (plan->attribute_count == 0) {
        return NJ_TRY(cuLaunchKernel, function, grid[0], grid[1], grid[2], plan->block_threads, 1, 1,
                      plan->shared_bytes, launch->stream, launch->params, NULL);
    }
    CUlaunchConfig config = {
        .gridDimX = grid[0],
        .gridDimY = grid[1],
        .gridDimZ = grid[2],
        .blockDimX = plan->block_threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = plan->shared_bytes,
        .hStream = launch->stream,
        .attrs = (CUlaunchAttribute *)plan->attributes,
        .numAttrs = plan->attribute_count,
    };
    return NJ_TRY(cuLaunchKernelEx, &config, function, launch->params, NULL);
}

static nj_outcome enqueue_on_device(const nj_plan *plan, nj_launch *launch)
{
    bool pushed;
    nj_outcome outcome = nj_context_enter(plan->device, &pushed);
    if (outcome.call == NULL) {
        outcome = enqueue(plan, launch);
        nj_context_leave(pushed);
    }
    return outcome;
}

/* Whether the limits that the launch needs were raised in a context that is gone. */
static bool has_lost_limits(const nj_plan *plan)
{
    return plan->limited && atomic_load_explicit(&plan->function->limits[plan->ordinal].epoch, memory_order_relaxed) !=
                                atomic_load_explicit(&plan->device->epoch, memory_order_relaxed);
}

typedef struct {
    const nj_plan *plan;
    nj_launch *launch;
} nj_enqueuing;

static nj_outcome prepare_and_enqueue(void *facts)
{
    const nj_plan *plan = ((nj_enqueuing *)facts)->plan;
    nj_launch *launch = ((nj_enqueuing *)facts)->launch;
    nj_outcome outcome = has_lost_limits(plan) ? nj_plan_prepare(plan, false) : NJ_SUCCESS;
    if (outcome.call != NULL) {
        return outcome;
    }
    /* the driver blocks where its queue is full, until other work ends: perhaps work that waits for the GIL */
    Py_BEGIN_ALLOW_THREADS
    outcome = enqueue_on_device(plan, launch);
    Py_END_ALLOW_THREADS
    return outcome;
}

/* Another library may have reset the device and retained its context again before we met the loss: what the driver then
 * refuses is a launch beyond limits that nobody has raised. Once more with the limits raised, if that can be it; a context
 * that is lost at this very moment is told as such. */
static __attribute__((noinline, cold)) nj_outcome enqueue_anew(nj_enqueuing *enqueuing, nj_outcome failed)
{
    bool beyond = failed.code == CUDA_ERROR_INVALID_VALUE || failed.code == CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (!enqueuing->plan->limited || !beyond) {
        return failed;
    }
    nj_outcome outcome = nj_plan_prepare(enqueuing->plan, true);
    return outcome.call == NULL ? prepare_and_enqueue(enqueuing) : outcome;
}

static int run(const nj_plan *plan, nj_launch *launch)
{
    nj_enqueuing enqueuing = {plan, launch};
    nj_outcome outcome = nj_do_on_device(plan->device, prepare_and_enqueue, &enqueuing);
    if (outcome.call != NULL) {
        outcome = enqueue_anew(&enqueuing, outcome);
        if (nj_check(outcome, plan->device, plan->label) < 0) {
            return -1;
        }
    }
    nj_device_note(plan->device, plan->label, launch->grid);
    return 0;
}

static int run_hooked(const nj_plan *plan, const nj_signature *signature, nj_launch *launch)
{
    PyObject *entered = nj_hooks_enter(plan, signature, launch);
    if (entered == NULL) {
        return -1;
    }
    int status = run(plan, launch);
    return nj_hooks_leave(entered) < 0 ? -1 : status;
}

static int enter_and_run(const nj_plan *plan, const nj_signature *signature, nj_launch *launch)
{
    bool hooked = atomic_load_explicit(&nj_hooked, memory_order_relaxed);
    return hooked ? run_hooked(plan, signature, launch) : run(plan, launch);
}

static int borrow_and_run(const nj_plan *plan, const nj_signature *signature, const nj_call *call, nj_launch *launch)
{
    nj_scratch_held held = {{NULL}, {NULL}};
    int status = nj_scratch_borrow(plan, signature, call, launch, &held);
    if (status == 0) {
        status = enter_and_run(plan, signature, launch);
    }
    nj_scratch_return(&held);
    return status;
}

int nj_plan_launch(nj_plan *plan, const nj_signature *signature, nj_call *call, const int64_t grid[3])
{
    nj_launch launch;
    if (check_grid(plan, signature, grid, &launch) < 0) {
        return -1;
    }
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) {
        return 0;
    }
    if (nj_forked()) {
        nj_raise_forked(plan->label);
        return -1;
    }
    void *stream;
    if (nj_find_stream(signature, call, &stream) < 0) {
        return -1;
    }
    launch.stream = stream;
    launch.scratch_address[0] = launch.scratch_address[1] = 0;
    if (nj_pack(plan, signature, call, &launch) < 0) {
        return -1;
    }
    bool needs_scratch = plan->global_scratch.bytes != 0 || plan->profile_scratch.bytes != 0;
    return needs_scratch ? borrow_and_run(plan, signature, call, &launch) : enter_and_run(plan, signature, &launch);
}
