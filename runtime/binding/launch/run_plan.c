#include "launch/run_plan.h"

#include "call/signature.h"
#include "launch/hooks.h"
#include "launch/scratch.h"
#include "launch/stream.h"
#include "python/exceptions.h"

#include "launch/grid.h"
#include "launch/pack.h"

static nj_arguments arguments_of(const py_call *call)
{
    return (nj_arguments){call->values, call->leaves, call->descriptors};
}

/* Raises the engine's error. Returns -1. */
static __attribute__((noinline, cold)) int refuse(const py_plan *plan, const py_signature *signature, const nj_error *error)
{
    if (error->code != NJ_ERROR_ARGUMENT) {
        py_raise_driver(error, plan->it.device, plan->label);
        return -1;
    }
    PyObject *place = *error->where == 0 ? NULL : PyUnicode_FromString(error->where);
    PyObject *argument = error->argument < 0 ? place : signature->names[error->argument];
    py_refuse(signature->kernel, argument, PyUnicode_FromString(error->got), "%s", error->what);
    Py_XDECREF(place);
    return -1;
}

int py_plan_pack(const py_plan *plan, const py_signature *signature, const py_call *call, nj_launch_state *launch)
{
    nj_arguments arguments = arguments_of(call);
    nj_error error;
    bool packed;
    Py_BEGIN_ALLOW_THREADS
    packed = nj_launch_pack(&plan->it, &arguments, launch, &error);
    Py_END_ALLOW_THREADS
    return packed ? 0 : refuse(plan, signature, &error);
}

static int enqueue(const py_plan *plan, const py_signature *signature, nj_launch_state *launch)
{
    nj_error error;
    bool enqueued;
    Py_BEGIN_ALLOW_THREADS
    enqueued = nj_launch_enqueue(&plan->it, launch, &error);
    Py_END_ALLOW_THREADS
    if (!enqueued) {
        return refuse(plan, signature, &error);
    }
    py_device_note(plan->it.device, plan->label, launch->grid);
    return 0;
}

static int enqueue_hooked(const py_plan *plan, const py_signature *signature, nj_launch_state *launch)
{
    if (!atomic_load_explicit(&py_hooked, memory_order_relaxed)) {
        return enqueue(plan, signature, launch);
    }
    PyObject *entered = py_hooks_enter(plan, signature, launch);
    if (entered == NULL) {
        return -1;
    }
    int status = enqueue(plan, signature, launch);
    return py_hooks_leave(entered) < 0 ? -1 : status;
}

/* Runs a launch that needs scratch memory or calls hooks. */
static __attribute__((noinline)) int run_in_steps(const py_plan *plan, const py_signature *signature, const py_call *call,
                                                  nj_launch_state *launch)
{
    py_scratch_held held = {{NULL}, {NULL}};
    launch->scratch_address[0] = launch->scratch_address[1] = 0;
    int status = py_plan_pack(plan, signature, call, launch);
    if (status == 0 && nj_runnable_needs_scratch(&plan->it)) {
        status = py_scratch_borrow(plan, signature, call, launch, &held);
    }
    if (status == 0) {
        status = enqueue_hooked(plan, signature, launch);
    }
    py_scratch_return(&held);
    return status;
}

int py_run_plan(const py_plan *plan, const py_signature *signature, const py_call *call, const int64_t grid[3])
{
    nj_launch_state launch;
    nj_error error;
    if (!nj_launch_size(&plan->it, grid, &launch, &error)) {
        return refuse(plan, signature, &error);
    }
    if (nj_launch_is_empty(&launch)) {
        return 0;
    }
    if (nj_forked()) {
        py_raise_forked(plan->label);
        return -1;
    }
    void *stream;
    if (py_find_stream(signature, call, &stream) < 0) {
        return -1;
    }
    launch.stream = stream;
    if (nj_runnable_needs_scratch(&plan->it) || atomic_load_explicit(&py_hooked, memory_order_relaxed)) {
        return run_in_steps(plan, signature, call, &launch);
    }
    nj_arguments arguments = arguments_of(call);
    bool enqueued;
    launch.scratch_address[0] = launch.scratch_address[1] = 0;
    /* release the GIL: the driver blocks while its queue is full, and the work in the queue may wait for the GIL */
    Py_BEGIN_ALLOW_THREADS
    enqueued = nj_launch_run(&plan->it, &arguments, &launch, &error);
    Py_END_ALLOW_THREADS
    if (!enqueued) {
        return refuse(plan, signature, &error);
    }
    py_device_note(plan->it.device, plan->label, launch.grid);
    return 0;
}
