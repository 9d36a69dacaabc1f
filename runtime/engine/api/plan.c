#include "api/plan.h"

#include "base/texts.h"
#include "launch/loaded_image.h"
#include "launch/row_facts.h"

#include <stdlib.h>

/* -- making a plan of a row -- */

/* Loads the image of a row; NULL with `error` filled. */
static nj_function *load_image(nj_kernel *kernel, size_t row, nj_row_facts *facts, int device, nj_error *error)
{
    nj_bundle *bundle = kernel->bundle;
    uint64_t began_ns = nj_now_ns();
    nj_image_bytes bytes;
    bool loaded;
    if (!nj_reader_image(&bundle->reader, kernel->number, &kernel->placement, nj_table_at(&kernel->table, NJ_COLUMN_IMAGE, row), &bytes, error)) {
        nj_within_bundle(bundle, error);
        return NULL;
    }
    nj_image image = nj_image_of(&bundle->reader, &bytes, &facts->entry);
    nj_function *function = nj_image_load(&image, device, &loaded, error);
    nj_image_drop(&bytes);
    if (function == NULL) {
        nj_within_kernel(kernel, error);
    } else if (loaded) {
        nj_bundle_tell(bundle, (nj_event){.kind = NJ_EVENT_LOAD, .device = device, .kernel = kernel->name, .variant = row}, began_ns);
    }
    return function;
}

static bool keep_symbol(nj_plan *plan, nj_span symbol)
{
    char *at = plan->symbol = malloc(symbol.size + 1);
    return at != NULL && nj_text_put(&at, symbol) != NULL;
}

static bool fill_plan(nj_plan *plan, nj_row_facts *facts, int device, nj_error *error)
{
    facts->facts.function = load_image(plan->kernel, plan->row, facts, device, error);
    facts->facts.device = device;
    plan->num_warps = facts->launch.num_warps;
    plan->registers = nj_table_at(&plan->kernel->table, NJ_COLUMN_REGISTERS, plan->row);
    if (facts->facts.function == NULL) {
        return false;
    }
    const nj_kernel *kernel = plan->kernel;
    bool filled = nj_runnable_init(&plan->it, &facts->facts, error) &&
                  nj_leaf_values_find(&plan->values, &kernel->table, plan->row, kernel->ids, &plan->it, error) &&
                  (keep_symbol(plan, facts->launch.symbol) || nj_no_memory(error));
    return filled || nj_within_kernel(kernel, error);
}

void nj_plan_free(nj_plan *plan)
{
    if (plan != NULL) {
        nj_runnable_clear(&plan->it);
        nj_leaf_values_clear(&plan->values);
        free(plan->symbol);
        free(plan);
    }
}

/* Reads a plan's row into `facts`, and fills the plan. */
static bool read_plan(nj_plan *plan, nj_row_facts *facts, int device, nj_error *error)
{
    const nj_kernel *kernel = plan->kernel;
    nj_row_home home = {&kernel->table, kernel->ids, kernel->bundle->arch, kernel->param_count + kernel->option_count};
    if (!nj_row_facts_read(&home, plan->row, facts, error)) {
        return nj_within_kernel(kernel, error);
    }
    return fill_plan(plan, facts, device, error);
}

/* Returns a new plan; NULL with `error` filled. */
static nj_plan *make_plan(nj_kernel *kernel, size_t row, int device, nj_error *error)
{
    uint64_t began_ns = nj_now_ns();
    nj_row_facts *facts = malloc(sizeof *facts);
    nj_plan *plan = calloc(1, sizeof *plan);
    bool made = (facts != NULL && plan != NULL) || nj_no_memory(error);
    if (made) {
        plan->kernel = kernel;
        plan->row = row;
        made = read_plan(plan, facts, device, error);
        nj_row_facts_close(facts);
    }
    free(facts);
    if (!made) {
        nj_plan_free(plan);
        return NULL;
    }
    nj_bundle_tell(kernel->bundle, (nj_event){.kind = NJ_EVENT_PLAN, .device = device, .kernel = kernel->name, .variant = row}, began_ns);
    return plan;
}

static nj_plan *find_plan_locked(const nj_kernel *kernel, size_t row, int device)
{
    nj_plan *plan = kernel->plans[row];
    while (plan != NULL && plan->it.ordinal != device) {
        plan = plan->next;
    }
    return plan;
}

nj_plan *nj_plan_of(nj_kernel *kernel, size_t row, int device, nj_error *error)
{
    pthread_mutex_lock(&kernel->lock);
    nj_plan *known = find_plan_locked(kernel, row, device);
    pthread_mutex_unlock(&kernel->lock);
    nj_plan *made = known != NULL ? NULL : make_plan(kernel, row, device, error);
    if (made == NULL) {
        return known;
    }
    pthread_mutex_lock(&kernel->lock);
    known = find_plan_locked(kernel, row, device);
    if (known == NULL) {
        made->next = kernel->plans[row];
        kernel->plans[row] = made;
    }
    pthread_mutex_unlock(&kernel->lock);
    if (known != NULL) {
        nj_plan_free(made); /* another thread added its own first */
    }
    return known != NULL ? known : made;
}

/* -- queries -- */

nj_code nj_plan_about(const nj_plan *plan, nj_plan_info *info, nj_error *error)
{
    static const nj_sized sized = {"nj_plan_info", sizeof *info, NJ_END_OF(nj_plan_info, value_count), -1};
    const nj_table *table = &plan->kernel->table;
    nj_plan_info all = {sizeof all, plan->symbol, plan->row, nj_table_at(table, NJ_COLUMN_CONFIG, plan->row), plan->it.ordinal,
                        plan->num_warps, plan->it.num_ctas, plan->it.shared_bytes, plan->registers, plan->values.count};
    return nj_sized_fill(&sized, info, &all, error);
}

nj_code nj_plan_value(const nj_plan *plan, size_t number, nj_plan_value_info *info, nj_error *error)
{
    static const nj_sized sized = {"nj_plan_value_info", sizeof *info, NJ_END_OF(nj_plan_value_info, hint), -1};
    if (number >= plan->values.count) {
        return nj_refuse_number(plan->kernel, number, plan->values.count, "values", error);
    }
    const nj_leaf_value *value = &plan->values.all[number];
    nj_plan_value_info all = {sizeof all, plan->values.names[number], plan->values.types[number], NJ_ARG_NONE, NJ_DTYPE_NONE,
                              value->is_descriptor ? sizeof(nj_tensor_descriptor) : value->bytes, value->hint};
    all.kind = nj_leaf_value_kind(value, &all.dtype);
    return nj_sized_fill(&sized, info, &all, error);
}
