#include "launch/plan.h"

#include "launch/slot.h"

#include <stdlib.h>

static bool read_grid(nj_launch_plan *plan, const nj_plan_facts *facts, nj_error *error)
{
    for (int i = 0; i < facts->grid_count && i < 3; i++) {
        size_t bytes = facts->grid[i].length * sizeof *facts->grid[i].code;
        nj_instruction *code = malloc(bytes + 1);
        if (code == NULL) {
            return nj_no_memory(error);
        }
        memcpy(code, facts->grid[i].code, bytes);
        plan->grid[i] = (nj_program){facts->grid[i].length, code};
        plan->grid_count++;
    }
    return true;
}

int nj_plan_grid(const nj_launch_plan *plan, const nj_value *values, int64_t grid[3])
{
    grid[0] = grid[1] = grid[2] = 1;
    for (int i = 0; i < plan->grid_count; i++) {
        nj_value result;
        if (!nj_run(&plan->grid[i], values, &result, NULL) || result.tag != NJ_TAG_INT) {
            return i;
        }
        grid[i] = result.bits;
    }
    return -1;
}

static void add_number(nj_launch_plan *plan, int id, int number)
{
    plan->attributes[plan->attribute_count++] = (CUlaunchAttribute){.id = id, .value.number = number};
}

/* As Triton launches: a cluster spreads over as many SMs as it can. */
static void set_attributes(nj_launch_plan *plan, const nj_plan_facts *facts)
{
    if (facts->cooperative) {
        add_number(plan, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 1);
    }
    if (facts->pdl) {
        add_number(plan, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 1);
    }
    if (plan->num_ctas > 1) {
        add_number(plan, CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, CU_CLUSTER_SCHEDULING_POLICY_SPREAD);
        plan->attributes[plan->attribute_count++] = (CUlaunchAttribute){
            .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {plan->num_ctas, 1, 1}};
    }
}

static bool is_align(const nj_scratch *scratch)
{
    return scratch->bytes == 0 || (scratch->align != 0 && (scratch->align & (scratch->align - 1)) == 0);
}

static bool check_numbers(const nj_plan_facts *facts, nj_error *error)
{
    bool good = facts->block_threads > 0 && facts->block_threads <= 2048 && facts->num_ctas > 0 && facts->num_ctas <= 16 &&
                facts->shared_bytes <= 1u << 20 && is_align(&facts->global_scratch) && is_align(&facts->profile_scratch);
    return good || nj_differ(error, "", "expected the launch facts of a variant");
}

bool nj_plan_init(nj_launch_plan *plan, const nj_plan_facts *facts, nj_error *error)
{
    memset(plan, 0, sizeof *plan);
    plan->function = facts->function;
    plan->ordinal = facts->device;
    plan->argument_count = facts->argument_count;
    plan->block_threads = facts->block_threads;
    plan->num_ctas = facts->num_ctas;
    plan->shared_bytes = facts->shared_bytes;
    plan->global_scratch = facts->global_scratch;
    plan->profile_scratch = facts->profile_scratch;
    plan->limited = nj_function_limited(plan->function, plan->shared_bytes, plan->num_ctas);
    if (!check_numbers(facts, error) || !nj_plan_read_maps(plan, facts, error) || !nj_plan_read_slots(plan, facts, error) ||
        !read_grid(plan, facts, error)) {
        return false;
    }
    set_attributes(plan, facts);
    plan->device = nj_device_ready(plan->ordinal, error);
    return plan->device != NULL &&
           (!plan->limited ||
            nj_outcome_good(nj_function_raise(plan->function, plan->device, plan->shared_bytes, plan->num_ctas, false), error));
}

void nj_plan_clear(nj_launch_plan *plan)
{
    free(plan->slots);
    for (size_t i = 0; i < plan->map_count; i++) {
        nj_map_cache_clear(&plan->maps[i].cache);
    }
    free(plan->maps);
    for (int i = 0; i < 3; i++) {
        free(plan->grid[i].code);
    }
}
