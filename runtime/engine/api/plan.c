/* Plans: made of rows, and launched with values in memory. */
#include "api/handles.h"
#include "api/texts.h"
#include "base/sized.h"
#include "cuda/library.h"
#include "launch/descriptor.h"
#include "launch/slot.h"
#include "table/type_name.h"

#include <stdlib.h>

/* -- made of a row -- */

/* Loads the image of a row; NULL with `error` filled. */
static nj_function *load_image(nj_kernel *kernel, size_t row, nj_row_facts *facts, int device, nj_error *error)
{
    nj_bundle *bundle = kernel->bundle;
    uint64_t began_ns = nj_now_ns();
    nj_image_bytes bytes;
    bool loaded;
    facts->entry.sm = (uint32_t)bundle->image_arch.number;
    facts->entry.arch_specific = bundle->image_arch.suffix == 'a';
    if (!nj_reader_image(&bundle->reader, kernel->number, &kernel->placement, nj_table_at(&kernel->table, NJ_COLUMN_IMAGE, row), &bytes, error)) {
        if (bundle->path != NULL) {
            nj_note_place(error, bundle->path);
        }
        return NULL;
    }
    nj_image image = {.content = bytes.content, .min_driver = (int)bundle->reader.index.min_driver, .entry = facts->entry};
    nj_sha256(bytes.content, image.digest);
    nj_function *function = nj_image_load(&image, device, &loaded, error);
    nj_image_drop(&bytes);
    if (function == NULL) {
        nj_within_kernel(kernel, error);
    } else if (loaded) {
        nj_tell(bundle, "load", kernel, nj_format("variant %zu", row).text, device, began_ns);
    }
    return function;
}

/* What is written of a plan while its leaves are walked: at first only counted. */
typedef struct {
    const nj_kernel *kernel;
    const nj_hint_set *hints;
    nj_plan *plan; /* NULL while it is counted */
    uint32_t argument;
    nj_span name, param_type;
    size_t items, chars, hinted;
    char *text;
} item_walk;

static uint8_t hint_of(const item_walk *it, nj_span path)
{
    uint8_t hint = 0;
    for (uint32_t i = 0; i < it->hints->count; i++) {
        if (nj_span_equal(it->hints->hints[i].leaf, path)) {
            hint = it->hints->hints[i].value;
        }
    }
    return hint;
}

static nj_plan_item item_of(const item_walk *it, nj_span path, nj_span type)
{
    nj_plan_item item = {.type = type, .source = (int16_t)it->argument, .leaf = -1, .hint = hint_of(it, path)};
    if (path.size > it->name.size) {
        item.leaf = (int16_t)nj_find_entry(it->param_type, (nj_span){path.at + it->name.size, path.size - it->name.size});
    }
    item.compiled_in = (nj_value){.tag = NJ_TAG_NONE};
    item.is_descriptor = nj_is_descriptor_name(type);
    if (!item.is_descriptor && !nj_is_compiled_in(type)) {
        item.bytes = (uint8_t)nj_param_bytes(type, &item.dtype);
    }
    return item;
}

static bool take_item(void *context, nj_span path, nj_span type)
{
    item_walk *it = context;
    nj_plan_item item = item_of(it, path, type);
    if (it->plan != NULL) {
        it->plan->items[it->items] = item;
        it->plan->item_names[it->items] = nj_text_put(&it->text, path);
        it->plan->item_types[it->items] = nj_text_put(&it->text, type);
        if (item.hint != 0 && item.bytes != 0) {
            it->plan->hinted[it->hinted] = (uint16_t)it->items;
        }
    }
    it->items++;
    it->hinted += item.hint != 0 && item.bytes != 0;
    it->chars += path.size + type.size + 2;
    return it->items < UINT16_MAX;
}

static void walk_items(item_walk *it, size_t row)
{
    const nj_table *table = &it->kernel->table;
    const nj_span *types = table->signatures[table->cases[nj_table_at(table, NJ_COLUMN_CASE, row)].signature];
    it->hints = &table->hint_sets[nj_table_at(table, NJ_COLUMN_HINTS, row)];
    for (uint32_t i = 0, place = 0; i < table->param_count; i++) {
        if (!table->params[i].is_constexpr) {
            it->argument = i;
            it->name = table->params[i].name;
            it->param_type = types[place++];
            nj_walk_leaves(it->param_type, it->name, take_item, it);
        }
    }
}

/* Says which item fills a slot. */
static nj_plan_source source_of(const nj_plan *plan, const nj_slot *slot)
{
    nj_plan_source source = {.item = slot->source, .is_part = slot->part != NJ_PART_VALUE};
    for (size_t i = 0; slot->source >= 0 && i < plan->item_count; i++) {
        if (plan->items[i].source == slot->source && plan->items[i].leaf == slot->leaf) {
            source.item = (int16_t)i;
        }
    }
    return source;
}

/* Reads the constants that are compiled in: the grid may ask for them. */
static bool read_constants(nj_plan *plan, nj_error *error)
{
    for (size_t i = 0; i < plan->item_count; i++) {
        nj_type type;
        if (!nj_is_constant_type(plan->items[i].type)) {
            continue;
        }
        bool read = nj_type_read(plan->items[i].type, plan->kernel->ids, &type, error);
        if (read && type.tags != 0) {
            plan->items[i].compiled_in = (nj_value){.tag = (uint8_t)__builtin_ctz(type.tags), .bits = type.low};
        }
        nj_type_clear(&type);
        if (!read) {
            return false;
        }
    }
    return true;
}

static bool fill_items(nj_plan *plan, nj_span symbol, nj_error *error)
{
    item_walk count = {.kernel = plan->kernel};
    walk_items(&count, plan->row);
    plan->item_count = count.items;
    plan->hinted_count = count.hinted;
    plan->items = malloc((count.items + 1) * sizeof *plan->items);
    plan->hinted = malloc((count.hinted + 1) * sizeof *plan->hinted);
    plan->item_names = malloc((count.items + 1) * sizeof *plan->item_names);
    plan->item_types = malloc((count.items + 1) * sizeof *plan->item_types);
    plan->texts = malloc(count.chars + symbol.size + 1);
    plan->sources = malloc((plan->it.slot_count + 1) * sizeof *plan->sources);
    if (plan->items == NULL || plan->hinted == NULL || plan->item_names == NULL || plan->item_types == NULL || plan->texts == NULL ||
        plan->sources == NULL) {
        return nj_no_memory(error);
    }
    item_walk fill = {.kernel = plan->kernel, .plan = plan, .text = plan->texts};
    walk_items(&fill, plan->row);
    plan->symbol = nj_text_put(&fill.text, symbol);
    for (size_t i = 0; i < plan->it.slot_count; i++) {
        plan->sources[i] = source_of(plan, &plan->it.slots[i]);
        plan->has_descriptors |= plan->sources[i].is_part;
    }
    return read_constants(plan, error);
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
    bool filled = nj_runnable_init(&plan->it, &facts->facts, error) && fill_items(plan, facts->launch.symbol, error);
    return filled || nj_within_kernel(plan->kernel, error);
}

void nj_plan_free(nj_plan *plan)
{
    if (plan != NULL) {
        nj_runnable_clear(&plan->it);
        free(plan->items);
        free(plan->hinted);
        free(plan->item_names);
        free(plan->item_types);
        free(plan->texts);
        free(plan->sources);
        free(plan);
    }
}

/* New; NULL with `error` filled. */
static nj_plan *make_plan(nj_kernel *kernel, size_t row, int device, nj_error *error)
{
    uint64_t began_ns = nj_now_ns();
    nj_row_home home = {&kernel->table, kernel->ids, kernel->bundle->arch, kernel->param_count + kernel->option_count};
    nj_row_facts *facts = malloc(sizeof *facts);
    nj_plan *plan = calloc(1, sizeof *plan);
    bool made = (facts != NULL && plan != NULL) || nj_no_memory(error);
    if (made) {
        plan->kernel = kernel;
        plan->row = row;
        made = nj_row_read(&home, row, facts, error) ? fill_plan(plan, facts, device, error) : nj_within_kernel(kernel, error);
        nj_row_close(facts);
    }
    free(facts);
    if (!made) {
        nj_plan_free(plan);
        return NULL;
    }
    nj_tell(kernel->bundle, "plan", kernel, nj_format("variant %zu", row).text, device, began_ns);
    return plan;
}

static nj_plan *find_plan_locked(const nj_kernel *kernel, size_t row, int device)
{
    nj_plan *plan = kernel->plans;
    while (plan != NULL && (plan->row != row || plan->it.ordinal != device)) {
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
        made->next = kernel->plans;
        kernel->plans = made;
    }
    pthread_mutex_unlock(&kernel->lock);
    if (known != NULL) {
        nj_plan_free(made); /* another thread was faster */
    }
    return known != NULL ? known : made;
}

/* -- questions -- */

void nj_plan_about(const nj_plan *plan, nj_plan_info *info)
{
    const nj_table *table = &plan->kernel->table;
    nj_plan_info all = {info->size, plan->symbol, plan->row, nj_table_at(table, NJ_COLUMN_CONFIG, plan->row), plan->it.ordinal,
                        plan->num_warps, plan->it.num_ctas, plan->it.shared_bytes, plan->registers, plan->item_count};
    nj_sized_fill(info, &all, sizeof all);
}

void nj_plan_value(const nj_plan *plan, size_t number, nj_plan_value_info *info)
{
    const nj_plan_item *item = &plan->items[number];
    nj_plan_value_info all = {info->size, plan->item_names[number], plan->item_types[number],
                              item->is_descriptor ? sizeof(nj_tensor_descriptor) : item->bytes, item->hint};
    nj_sized_fill(info, &all, sizeof all);
}

/* -- launched with values -- */

/* Reads the bytes of a value; the bits above them are 0. */
static uint64_t read_bits(const nj_plan_item *item, const void *value)
{
    uint64_t bits = 0;
    memcpy(&bits, value, item->bytes);
    return bits;
}

/* Makes of an item's value what expressions see. */
static nj_value value_of(const nj_plan_item *item, const void *from)
{
    uint64_t bits = item->bytes == 0 ? 0 : read_bits(item, from);
    int unused = 64 - 8 * item->bytes;
    if (item->is_descriptor) {
        return (nj_value){.tag = NJ_TAG_DESCRIPTOR};
    }
    if (item->bytes == 0) {
        return item->compiled_in;
    }
    if (*item->type.at == '*') {
        return (nj_value){.tag = NJ_TAG_POINTER, .bits = (int64_t)bits};
    }
    uint8_t kind = nj_dtypes[item->dtype].kind;
    if (kind == NJ_OF_BOOLS) {
        return (nj_value){.tag = NJ_TAG_BOOL, .bits = (bits & 1) != 0};
    }
    if (kind == NJ_OF_FLOATS) {
        return (nj_value){.tag = NJ_TAG_OPAQUE, .bits = (int64_t)bits};
    }
    bool is_signed = kind == NJ_OF_INTS, is_wide = !is_signed && item->bytes == 8 && bits > INT64_MAX;
    return (nj_value){.tag = is_wide ? NJ_TAG_UINT : NJ_TAG_INT, .bits = is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)bits};
}

static bool refuse_hint(const nj_plan *plan, size_t number, const void *value, nj_error *error)
{
    const nj_plan_item *item = &plan->items[number];
    nj_value got = value_of(item, value);
    const char *format = got.tag == NJ_TAG_POINTER ? "%#llx" : got.tag == NJ_TAG_UINT ? "%llu" : "%lld";
    nj_note_argument(error, item->source, nj_format(format, (unsigned long long)got.bits).text, "expected %s, as the plan was compiled for",
                     item->hint == 1 ? "1" : "a multiple of 16");
    nj_at(error, plan->item_names[number]);
    return nj_within_kernel(plan->kernel, error);
}

/* Returns the bits of a value that break its hint; 0 if it holds. */
static inline uint64_t wrong_bits(const nj_plan_item *item, const void *value)
{
    uint64_t bits = read_bits(item, value);
    return item->hint == 1 ? bits ^ 1 : bits & 15;
}

/* Checks what the variant was compiled for by one mask. */
static bool check_hints(const nj_plan *plan, const void *const *values, nj_error *error)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < plan->hinted_count; i++) {
        wrong |= wrong_bits(&plan->items[plan->hinted[i]], values[plan->hinted[i]]);
    }
    for (size_t i = 0; wrong != 0 && i < plan->hinted_count; i++) {
        if (wrong_bits(&plan->items[plan->hinted[i]], values[plan->hinted[i]]) != 0) {
            return refuse_hint(plan, plan->hinted[i], values[plan->hinted[i]], error);
        }
    }
    return true;
}

/* The descriptors among values, as the engine has them; by item. */
typedef struct {
    nj_descriptor made[NJ_DESCRIPTORS_MAX];
    int16_t items[NJ_DESCRIPTORS_MAX];
    size_t count;
} read_descriptors;

static const nj_descriptor *descriptor_of(const nj_plan *plan, int16_t item, const void *const *values, read_descriptors *read, nj_error *error)
{
    for (size_t i = 0; i < read->count; i++) {
        if (read->items[i] == item) {
            return &read->made[i];
        }
    }
    if (read->count == NJ_DESCRIPTORS_MAX) {
        nj_note_argument(error, plan->items[item].source, "more", "expected at most %d tensor descriptors", NJ_DESCRIPTORS_MAX);
        return NULL;
    }
    nj_descriptor *made = &read->made[read->count];
    if (!nj_descriptor_take(values[item], plan->items[item].source, made, error)) {
        return NULL;
    }
    read->items[read->count++] = item;
    return made;
}

static __attribute__((noinline)) bool pack_parts(const nj_plan *plan, const void *const *values, nj_launch_state *launch, nj_error *error)
{
    read_descriptors read = {.count = 0};
    bool packed = true;
    for (size_t i = 0; packed && i < plan->it.slot_count; i++) {
        if (plan->sources[i].is_part) {
            const nj_descriptor *descriptor = descriptor_of(plan, plan->sources[i].item, values, &read, error);
            packed = descriptor != NULL && nj_launch_pack_part(&plan->it, i, descriptor, launch, error);
        }
    }
    return packed || nj_name_argument(plan->kernel, error);
}

static bool pack_values(const nj_plan *plan, const void *const *values, nj_launch_state *launch, nj_error *error)
{
    for (size_t i = 0; i < plan->it.slot_count; i++) {
        int16_t item = plan->sources[i].item;
        launch->params[i] = item >= 0 ? (void *)values[item] : &launch->scratch_address[NJ_SOURCE_GLOBAL_SCRATCH - item];
    }
    return !plan->has_descriptors || pack_parts(plan, values, launch, error);
}

bool nj_refuse_grid(const nj_kernel *kernel, int dimension, nj_error *error)
{
    if (kernel->table.grid_count == 0) {
        nj_note_argument(error, -1, "", "the bundle has no grid for this kernel: expected a grid");
    } else {
        nj_span text = kernel->table.grid[dimension];
        nj_note_argument(error, -1, "none", "expected an int for grid[%d], which is %s", dimension, nj_quote(text).text);
    }
    return nj_within_kernel(kernel, error);
}

/* Computes the grid that the bundle gives. */
static __attribute__((noinline)) bool compute_grid(const nj_plan *plan, const void *const *values, int64_t grid[3], nj_error *error)
{
    nj_value seen[NJ_ARGUMENTS_MAX];
    memset(seen, 0, plan->it.argument_count * sizeof *seen);
    for (size_t i = 0; i < plan->item_count; i++) {
        const nj_plan_item *item = &plan->items[i];
        seen[item->source] = item->leaf >= 0 ? (nj_value){.tag = NJ_TAG_TUPLE} : value_of(item, values[i]);
    }
    int failed = plan->it.grid_count == 0 ? 0 : nj_runnable_grid(&plan->it, seen, grid);
    return failed < 0 || nj_refuse_grid(plan->kernel, failed, error);
}

static nj_code launch_values(const nj_plan *plan, const void *const *values, const uint32_t grid[3], struct CUstream_st *stream, nj_error *error)
{
    nj_launch_state launch;
    int64_t size[3] = {0};
    if (grid != NULL) {
        size[0] = grid[0], size[1] = grid[1], size[2] = grid[2];
    } else if (!compute_grid(plan, values, size, error)) {
        return error->code;
    }
    if (!check_hints(plan, values, error)) {
        return error->code;
    }
    if (!nj_launch_size(&plan->it, size, &launch, error)) {
        nj_within_kernel(plan->kernel, error);
        return error->code;
    }
    if (size[0] == 0 || size[1] == 0 || size[2] == 0) {
        return NJ_OK;
    }
    launch.stream = stream;
    launch.scratch_address[0] = launch.scratch_address[1] = 0;
    return pack_values(plan, values, &launch, error) && nj_enqueue(plan, &launch, error) ? NJ_OK : error->code;
}

nj_code nj_plan_launch(const nj_plan *plan, const void *const *values, const uint32_t grid[3], struct CUstream_st *stream, nj_error *error)
{
    nj_error own;
    return launch_values(plan, values, grid, stream, error == NULL ? &own : error);
}
