#include "api/plan.h"

bool nj_plan_enqueue(const nj_plan *plan, nj_launch_state *launch, nj_error *error)
{
    const nj_options *options = &plan->kernel->bundle->options;
    if (nj_forked()) {
        return nj_refuse_forked(error);
    }
    if (launch->stream == NULL && options->find_stream != NULL) {
        launch->stream = options->find_stream(options->user, plan->it.ordinal);
    }
    bool done = nj_runnable_needs_scratch(&plan->it) ? nj_plan_enqueue_with_scratch(plan, launch, error) : nj_launch_enqueue(&plan->it, launch, error);
    return done || nj_within_kernel(plan->kernel, error);
}
