#include "api/kernel.h"

#include "api/plan.h"
#include "base/texts.h"
#include "driver/query.h"

#include <stdlib.h>

bool nj_within_kernel(const nj_kernel *kernel, nj_error *error)
{
    nj_note_place(error, kernel->name);
    nj_note_place(error, "kernel");
    return nj_within_bundle(kernel->bundle, error);
}

bool nj_within_argument(const nj_kernel *kernel, nj_error *error)
{
    if (error->code == NJ_ERROR_ARGUMENT && error->argument >= 0 && error->where[0] == 0) {
        nj_note_place(error, kernel->names[error->argument]);
        nj_note_place(error, "argument");
    }
    return nj_within_kernel(kernel, error);
}

/* -- names -- */

static bool has_option(const nj_kernel *it, nj_span name)
{
    bool has = false;
    for (size_t i = 0; !has && i < it->option_count; i++) {
        has = nj_span_equal(it->options[i], name);
    }
    return has;
}

/* Lists the names of all configs' options, in order of first appearance. */
static bool list_options(nj_kernel *it, nj_error *error)
{
    const nj_table *table = &it->table;
    size_t most = 0;
    for (uint32_t i = 0; i < table->config_count; i++) {
        most += table->configs[i].option_count;
    }
    it->options = malloc((most + 1) * sizeof *it->options);
    for (uint32_t i = 0; it->options != NULL && i < table->config_count; i++) {
        for (uint32_t j = 0; j < table->configs[i].option_count; j++) {
            nj_span name = table->configs[i].options[j].name;
            if (!has_option(it, name)) {
                it->options[it->option_count++] = name;
            }
        }
    }
    if (it->options == NULL) {
        return nj_no_memory(error);
    }
    size_t count = table->param_count + it->option_count;
    return count <= NJ_ARGUMENTS_MAX ||
           nj_differ(error, nj_format("%zu", count).text, NJ_ARGUMENTS_RULE, NJ_ARGUMENTS_MAX);
}

static bool copy_names(nj_kernel *it, nj_error *error)
{
    const nj_table *table = &it->table;
    size_t chars = 0, count = table->param_count + it->option_count;
    it->names = malloc((count + 1) * sizeof *it->names);
    for (size_t i = 0; i < count; i++) {
        chars += 1 + (i < table->param_count ? table->params[i].name : it->options[i - table->param_count]).size;
    }
    char *at = it->texts = malloc(chars + 1);
    if (it->names == NULL || it->texts == NULL) {
        return nj_no_memory(error);
    }
    for (size_t i = 0; i < count; i++) {
        it->names[i] = nj_text_put(&at, i < table->param_count ? table->params[i].name : it->options[i - table->param_count]);
    }
    it->param_count = table->param_count;
    return true;
}

/* -- open and close -- */

static bool index_plans(nj_kernel *it, nj_error *error)
{
    it->plans = calloc(it->table.rows + 1, sizeof *it->plans);
    return it->plans != NULL || nj_no_memory(error);
}

static bool read_parts(nj_kernel *it, nj_error *error)
{
    const nj_kernel_entry *entry = &it->bundle->reader.index.kernels[it->number];
    it->ids = nj_ids_new();
    it->configs = calloc(1, sizeof *it->configs);
    return ((it->ids != NULL && it->configs != NULL) || nj_no_memory(error)) &&
           nj_placement_read(it->section.placement, entry->images, entry->payload_bytes, &it->placement, error) &&
           nj_table_read(it->section.table, (size_t)entry->variants, (size_t)entry->images, &it->table, error) &&
           index_plans(it, error) && list_options(it, error) && copy_names(it, error);
}

static nj_kernel *read_kernel(nj_bundle *bundle, size_t number, nj_error *error)
{
    nj_kernel *it = calloc(1, sizeof *it);
    if (it == NULL) {
        nj_no_memory(error);
        return NULL;
    }
    it->bundle = bundle;
    it->number = number;
    it->name = bundle->kernel_names[number];
    pthread_mutex_init(&it->lock, NULL);
    /* the reader's errors already name the kernel */
    if (!nj_reader_section(&bundle->reader, number, &it->section, error)) {
        nj_within_bundle(bundle, error);
    } else if (read_parts(it, error)) {
        return it;
    } else {
        nj_within_kernel(it, error);
    }
    nj_kernel_close(it);
    return NULL;
}

static void close_device(nj_kernel_device *it)
{
    if (it != NULL) {
        nj_plan_cache_clear(&it->plans, NULL);
        nj_spec_clear(&it->spec);
        free(it);
    }
}

static void close_plans(nj_kernel *it)
{
    for (size_t row = 0; it->plans != NULL && row < it->table.rows; row++) {
        while (it->plans[row] != NULL) {
            nj_plan *next = it->plans[row]->next;
            nj_plan_free(it->plans[row]);
            it->plans[row] = next;
        }
    }
    free(it->plans);
}

void nj_kernel_close(nj_kernel *it)
{
    if (it == NULL) {
        return;
    }
    close_plans(it);
    for (int i = 0; i < NJ_DEVICES_MAX; i++) {
        close_device(atomic_load(&it->devices[i]));
    }
    nj_kernel_close_configs(it);
    nj_table_close(&it->table);
    nj_placement_close(&it->placement);
    nj_ids_free(it->ids);
    free(it->section.raw);
    free(it->options);
    free(it->names);
    free(it->texts);
    pthread_mutex_destroy(&it->lock);
    free(it);
}

static nj_kernel *refuse_name(const nj_bundle *bundle, const char *name, nj_error *error)
{
    nj_note_failure(error, NJ_ERROR_NO_KERNEL, nj_quote((nj_span){(const unsigned char *)name, strlen(name)}).text,
                    "expected one of %zu kernels", bundle->reader.index.kernel_count);
    nj_within_bundle(bundle, error);
    return NULL;
}

nj_kernel *nj_bundle_kernel(nj_bundle *bundle, const char *name, nj_error *error)
{
    int number = nj_reader_find(&bundle->reader, (nj_span){(const unsigned char *)name, strlen(name)});
    if (number < 0) {
        return refuse_name(bundle, name, error);
    }
    nj_kernel *known = atomic_load_explicit(&bundle->kernels[number], memory_order_acquire);
    nj_kernel *made = known != NULL ? NULL : read_kernel(bundle, (size_t)number, error);
    if (made != NULL && !atomic_compare_exchange_strong(&bundle->kernels[number], &known, made)) {
        nj_kernel_close(made); /* another thread added its own first */
        made = known;
    }
    return known != NULL ? known : made;
}

/* -- devices -- */

static bool check_arch(const nj_kernel *kernel, int device, nj_error *error)
{
    int capability;
    if (!nj_device_capability(device, &capability, error)) {
        return false;
    }
    if (nj_image_fit(kernel->bundle->image_arch, capability) > 0) {
        return true;
    }
    nj_text arch = nj_arch_spell(capability);
    return nj_fail(error, NJ_ERROR_NO_VARIANT, arch.text, "expected a device that runs %s: nojit build --arch %s builds for this one",
                   kernel->bundle->image_arch_name, arch.text);
}

/* Finds the tuning table that applies to a device; false with `error` filled. */
static bool find_tuned(const nj_tuning *tuning, int device, nj_tuned *tuned, nj_error *error)
{
    nj_device_facts facts;
    bool asks = nj_tuned_asks_device(tuning);
    if (asks && !nj_device_describe(device, &facts, error)) {
        return false;
    }
    *tuned = nj_tuned_on(tuning, asks ? &facts : NULL);
    return true;
}

static nj_kernel_device *make_device(nj_kernel *kernel, int device, nj_error *error)
{
    const nj_tuning *tuning = kernel->table.tuning.key_count == 0 ? NULL : &kernel->table.tuning;
    if (!check_arch(kernel, device, error)) {
        return NULL;
    }
    nj_kernel_device *it = calloc(1, sizeof *it);
    if (it == NULL) {
        nj_no_memory(error);
        return NULL;
    }
    nj_tuned tuned = {0};
    bool made = (tuning == NULL || find_tuned(tuning, device, &tuned, error)) &&
                nj_spec_init(&it->spec, &kernel->table, kernel->ids, kernel->option_count, kernel->bundle->arch, tuning, &tuned, error);
    if (!made) {
        close_device(it);
        it = NULL;
    }
    return it;
}

nj_kernel_device *nj_kernel_on(nj_kernel *kernel, int *device, nj_error *error)
{
    if (!nj_device_find(*device, device, error)) {
        nj_within_kernel(kernel, error);
        return NULL;
    }
    nj_kernel_device *known = atomic_load_explicit(&kernel->devices[*device], memory_order_acquire);
    if (known != NULL) {
        return known;
    }
    nj_kernel_device *made = make_device(kernel, *device, error);
    if (made == NULL) {
        nj_within_kernel(kernel, error);
    } else if (!atomic_compare_exchange_strong(&kernel->devices[*device], &known, made)) {
        close_device(made); /* another thread added its own first */
        made = known;
    }
    return made;
}

/* -- queries -- */

nj_code nj_refuse_number(const nj_kernel *kernel, size_t number, size_t count, const char *what, nj_error *error)
{
    nj_note_argument(error, -1, nj_format("%zu", number).text, "expected the number of one of %zu %s", count, what);
    nj_within_kernel(kernel, error);
    return NJ_ERROR_ARGUMENT;
}

nj_code nj_kernel_about(const nj_kernel *it, nj_kernel_info *info, nj_error *error)
{
    static const nj_sized sized = {"nj_kernel_info", sizeof *info, NJ_END_OF(nj_kernel_info, config_count), -1};
    nj_kernel_info all = {sizeof all, it->name, it->param_count, it->table.rows, it->table.config_count};
    return nj_sized_fill(&sized, info, &all, error);
}

nj_code nj_kernel_param(const nj_kernel *it, size_t number, nj_param_info *info, nj_error *error)
{
    static const nj_sized sized = {"nj_param_info", sizeof *info, NJ_END_OF(nj_param_info, has_default), -1};
    if (number >= it->param_count) {
        return nj_refuse_number(it, number, it->param_count, "params", error);
    }
    const nj_param *param = &it->table.params[number];
    nj_param_info all = {sizeof all, it->names[number], param->is_constexpr, param->has_default};
    return nj_sized_fill(&sized, info, &all, error);
}
