#include "launch/runnable.h"

#include "launch/grid.h"
#include "launch/launch_attributes.h"
#include "launch/slot.h"

#include <stdlib.h>

static bool is_align(const nj_scratch *scratch)
{
    return scratch->bytes == 0 || (scratch->align != 0 && (scratch->align & (scratch->align - 1)) == 0);
}

static bool check_numbers(const nj_runnable_facts *facts, nj_error *error)
{
    bool good = facts->block_threads > 0 && facts->block_threads <= 2048 && facts->num_ctas > 0 && facts->num_ctas <= 16 &&
                facts->shared_bytes <= 1u << 20 && is_align(&facts->global_scratch) && is_align(&facts->profile_scratch);
    return good || nj_differ(error, "", "expected the launch facts of a variant");
}

/* Refuses tensor maps on a driver without them, such as HIP; no build makes a bundle with such a row. */
static bool check_maps(const nj_runnable_facts *facts, nj_error *error)
{
    return facts->map_count == 0 || nj_calls.cuTensorMapEncodeTiled != NULL ||
           nj_differ(error, nj_format("%zu", facts->map_count).text, "expected no tensor maps: this device has none");
}

bool nj_runnable_init(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error)
{
    memset(runnable, 0, sizeof *runnable);
    runnable->function = facts->function;
    runnable->ordinal = facts->device;
    runnable->argument_count = facts->argument_count;
    runnable->block_threads = facts->block_threads;
    runnable->num_ctas = facts->num_ctas;
    runnable->shared_bytes = facts->shared_bytes;
    runnable->global_scratch = facts->global_scratch;
    runnable->profile_scratch = facts->profile_scratch;
    runnable->limited = nj_function_limited(runnable->function, runnable->shared_bytes, runnable->num_ctas);
    if (!check_numbers(facts, error) || !check_maps(facts, error) || !nj_runnable_read_maps(runnable, facts, error) || !nj_runnable_read_slots(runnable, facts, error) ||
        !nj_runnable_read_grid(runnable, facts, error)) {
        return false;
    }
    nj_runnable_set_attributes(runnable, facts);
    runnable->device = nj_device_ready(runnable->ordinal, error);
    return runnable->device != NULL &&
           (!runnable->limited ||
            nj_outcome_good(nj_function_raise(runnable->function, runnable->device, runnable->shared_bytes, runnable->num_ctas, false), error));
}

void nj_runnable_clear(nj_runnable *runnable)
{
    free(runnable->slots);
    for (size_t i = 0; i < runnable->map_count; i++) {
        nj_tensormap_cache_clear(&runnable->maps[i].cache);
    }
    free(runnable->maps);
    for (int i = 0; i < 3; i++) {
        free(runnable->grid[i].code);
    }
}
