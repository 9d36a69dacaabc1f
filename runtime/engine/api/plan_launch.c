/* Launches plans. */
#include "api/plan.h"

#include "launch/grid.h"

static bool refuse_grid(const nj_kernel *kernel, int dimension, nj_error *error)
{
    if (kernel->table.grid_count == 0) {
        nj_note_argument(error, -1, "", "the bundle has no grid for this kernel: expected a grid");
    } else {
        nj_span text = kernel->table.grid[dimension];
        nj_note_argument(error, -1, "none", "expected an int for grid[%d], which is %s", dimension, nj_quote(text).text);
    }
    return nj_within_kernel(kernel, error);
}

bool nj_plan_grid(const nj_plan *plan, const nj_value *values, int64_t grid[3], nj_error *error)
{
    int failed = plan->it.grid_count == 0 ? 0 : nj_runnable_grid(&plan->it, values, grid);
    return failed < 0 || refuse_grid(plan->kernel, failed, error);
}

/* Computes the bundle's grid. Not inlined, because most callers pass a grid. */
static __attribute__((noinline)) bool find_grid(const nj_plan *plan, const void *const *values, int64_t grid[3], nj_error *error)
{
    nj_value seen[NJ_ARGUMENTS_MAX];
    memset(seen, 0, plan->it.argument_count * sizeof *seen);
    nj_leaf_values_see(&plan->values, values, seen);
    return nj_plan_grid(plan, seen, grid, error);
}

bool nj_plan_begin(const nj_plan *plan, const int64_t grid[3], nj_stream stream, nj_launch_state *launch, nj_error *error)
{
    launch->stream = stream;
    launch->scratch_address[0] = launch->scratch_address[1] = 0;
    return nj_launch_size(&plan->it, grid, launch, error) || nj_within_kernel(plan->kernel, error);
}

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

static bool launch_values(const nj_plan *plan, const void *const *values, const uint32_t grid[3], nj_stream stream, nj_error *error)
{
    nj_launch_state launch;
    int64_t size[3] = {0};
    if (grid != NULL) {
        size[0] = grid[0], size[1] = grid[1], size[2] = grid[2];
    } else if (!find_grid(plan, values, size, error)) {
        return false;
    }
    if (!nj_leaf_values_check(&plan->values, values, error)) {
        return nj_within_argument(plan->kernel, error);
    }
    if (!nj_plan_begin(plan, size, stream, &launch, error)) {
        return false;
    }
    if (nj_launch_is_empty(&launch)) {
        return true;
    }
    return nj_leaf_values_pack(&plan->values, &plan->it, values, &launch, error) ? nj_plan_enqueue(plan, &launch, error)
                                                                            : nj_within_argument(plan->kernel, error);
}

nj_code nj_plan_launch(const nj_plan *plan, const void *const *values, const uint32_t grid[3], nj_stream stream, nj_error *error)
{
    nj_error own;
    error = error == NULL ? &own : error;
    return launch_values(plan, values, grid, stream, error) ? NJ_OK : error->code;
}
