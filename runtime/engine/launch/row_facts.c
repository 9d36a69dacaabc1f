#include "launch/row_facts.h"

#include "base/arch.h"
#include "expr/postfix.h"
#include "select/key_expressions.h"
#include "table/find_by_name.h"
#include "table/leaves.h"
#include "table/verify_rows.h"

#include <stdlib.h>

enum { POINTER_BYTES = 8, TENSOR_MAP_BYTES = 128 };

/* The state of reading a row. */
typedef struct {
    const nj_row_home *home;
    size_t row;
    nj_row_facts *facts;
    const nj_hint_set *hints;
    uint32_t slot, map; /* indices of the next slot and tensor map of `facts->launch` */
    nj_error *error;
} row_reading;

static bool take_settings(const nj_setting *settings, uint32_t count, nj_take_constexpr take, void *context)
{
    bool more = true;
    for (uint32_t i = 0; more && i < count; i++) {
        more = take(context, settings[i].name, &settings[i].value);
    }
    return more;
}

/* Passes the values of axes to `take`: those of type axes if `types` is true, else those of the others. */
static bool take_axes(const nj_table *table, const nj_case *of, bool types, nj_take_constexpr take, void *context)
{
    bool more = true;
    for (uint32_t i = 0; more && i < table->axis_count; i++) {
        const nj_axis *axis = &table->axes[i];
        more = axis->is_type != types || take(context, axis->name, &axis->values[of->places[i]]);
    }
    return more;
}

static bool take_defaults(const nj_table *table, nj_take_constexpr take, void *context)
{
    bool more = true;
    for (uint32_t i = 0; more && i < table->param_count; i++) {
        const nj_param *param = &table->params[i];
        more = !param->is_constexpr || !param->has_default || take(context, param->name, &param->fallback);
    }
    return more;
}

static bool take_derived(const nj_table *table, size_t row, nj_take_constexpr take, void *context)
{
    const nj_constant *values = table->derived_values[nj_table_at(table, NJ_COLUMN_DERIVED, row)];
    bool more = true;
    for (uint32_t i = 0; more && i < table->derived_count; i++) {
        more = take(context, table->derived[i].name, &values[i]);
    }
    return more;
}

bool nj_row_constexprs(const nj_table *table, size_t row, nj_take_constexpr take, void *context)
{
    const nj_config *config = &table->configs[nj_table_at(table, NJ_COLUMN_CONFIG, row)];
    const nj_case *of = &table->cases[nj_table_at(table, NJ_COLUMN_CASE, row)];
    return take_defaults(table, take, context) && take_settings(config->options, config->option_count, take, context) &&
           take_axes(table, of, false, take, context) && take_settings(config->constexprs, config->constexpr_count, take, context) &&
           take_derived(table, row, take, context);
}

/* -- the grid -- */

/* The scope in which the expressions of a grid look up names. */
typedef struct {
    const nj_row_home *home;
    size_t row;
    nj_span wanted;
    const nj_constant *found;
    bool starved;
} grid_names;

static bool keep_if_wanted(void *context, nj_span name, const nj_constant *value)
{
    grid_names *it = context;
    if (nj_span_equal(name, it->wanted)) {
        it->found = value;
    }
    return true;
}

/* Returns the constant that a name has in the grid of a row; NULL for an argument or an unknown name. */
static const nj_constant *find_constant(grid_names *it, nj_span name)
{
    const nj_table *table = it->home->table;
    it->wanted = name;
    it->found = NULL;
    nj_row_constexprs(table, it->row, keep_if_wanted, it);
    if (it->found == NULL) {
        take_axes(table, &table->cases[nj_table_at(table, NJ_COLUMN_CASE, it->row)], true, keep_if_wanted, it);
    }
    return it->found;
}

static bool find_name(void *context, nj_span name, nj_instruction *push)
{
    grid_names *it = context;
    if (nj_is_quoted(name)) {
        return nj_push_quoted(it->home->ids, name, push, &it->starved);
    }
    if (nj_span_is(name, "arch")) {
        *push = (nj_instruction){.op = NJ_OP_CONST_INT, .operand = it->home->arch};
        return true;
    }
    const nj_constant *constant = find_constant(it, name);
    if (constant != NULL) {
        return nj_push_constant(it->home->ids, constant, push, &it->starved);
    }
    size_t place = nj_param_place(it->home->table, name);
    *push = (nj_instruction){.op = NJ_OP_LOAD, .operand = (int64_t)place};
    return place < it->home->table->param_count;
}

static bool can_stand(void *context, nj_span name)
{
    nj_instruction push;
    return find_name(context, name, &push);
}

static bool read_grid(row_reading *it)
{
    const nj_table *table = it->home->table;
    nj_runnable_facts *facts = &it->facts->facts;
    grid_names names = {.home = it->home, .row = it->row};
    nj_assembly made;
    for (uint32_t i = 0; i < table->grid_count; i++) {
        if (!nj_assemble(table->programs[i], find_name, &names, it->home->argument_count, &made)) {
            return names.starved ? nj_no_memory(it->error)
                                 : nj_refuse_program(table->grid[i], table->programs[i], can_stand, &names, it->error);
        }
        if (!nj_program_copy(made.code, made.length, &facts->grid[i])) {
            return nj_no_memory(it->error);
        }
        facts->grid_count++;
    }
    return true;
}

/* -- parameters -- */

uint32_t nj_param_bytes(nj_span type, uint8_t *dtype)
{
    if (type.size > 0 && *type.at == '*') {
        *dtype = NJ_DTYPE_U64;
        return POINTER_BYTES;
    }
    if (nj_span_is(type, "tensormap")) {
        *dtype = NJ_DTYPE_U64;
        return TENSOR_MAP_BYTES;
    }
    *dtype = (uint8_t)nj_dtype_of(type);
    return nj_dtypes[*dtype].is_scalar ? nj_dtypes[*dtype].bytes : 0;
}

static bool add_slot(row_reading *it, nj_slot_facts slot, nj_span type)
{
    nj_row_facts *facts = it->facts;
    size_t number = facts->facts.slot_count;
    uint32_t bytes = nj_param_bytes(type, &slot.dtype);
    if (bytes == 0 || number == NJ_ARGUMENTS_MAX) {
        return nj_differ(it->error, nj_quote(type).text, "expected at most %d slots, of known types", NJ_ARGUMENTS_MAX);
    }
    facts->slots[number] = slot;
    facts->entry.sizes[number] = bytes;
    facts->facts.slot_count = facts->entry.param_count = number + 1;
    return true;
}

static bool add_map(row_reading *it, const nj_slot_facts *slot)
{
    nj_runnable_facts *facts = &it->facts->facts;
    const nj_tensor_map *map = &it->facts->launch.maps[it->map++];
    if (facts->map_count == NJ_DESCRIPTORS_MAX) {
        return nj_differ(it->error, nj_format("%u", it->facts->launch.map_count).text, "expected at most %d tensor maps", NJ_DESCRIPTORS_MAX);
    }
    nj_map_facts *made = &it->facts->maps[facts->map_count++];
    *made = (nj_map_facts){.source = slot->source, .leaf = slot->leaf, .swizzle = map->swizzle, .element_type = map->element_type,
                           .element_bytes = map->element_bytes, .rank = map->rank, .fp4_padded = map->fp4_padded};
    for (size_t i = 0; i < map->rank; i++) {
        made->box[map->rank - 1 - i] = map->block[i];
    }
    return true;
}

/* Adds a slot for a part of a descriptor. `part` is the suffix of the slot's source, such as `.map` or `.shape.1`. */
static bool add_part(row_reading *it, nj_slot_facts slot, nj_span part, nj_span type)
{
    static const struct {
        const char *name;
        uint8_t part;
    } parts[] = {{".map", NJ_PART_MAP}, {".base", NJ_PART_BASE}, {".shape.", NJ_PART_SHAPE}, {".stride.", NJ_PART_STRIDE},
                 {".pads_nan", NJ_PART_PADS_NAN}, {".rounds_tf32", NJ_PART_ROUNDS_TF32}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t length = strlen(parts[i].name);
        if (part.size >= length && memcmp(part.at, parts[i].name, length) == 0) {
            slot.part = parts[i].part;
            slot.index = (uint8_t)(part.size > length ? part.at[length] - '0' : 0);
            break;
        }
    }
    if (slot.part == NJ_PART_MAP) {
        slot.index = (uint8_t)it->facts->facts.map_count;
        if (!add_map(it, &slot)) {
            return false;
        }
    }
    return add_slot(it, slot, type);
}

static bool take_descriptor(row_reading *it, const nj_slot_facts *slot, nj_span path)
{
    const nj_launch_facts *launch = &it->facts->launch;
    bool taken = true;
    for (; taken && it->slot < launch->slot_count; it->slot++) {
        nj_span source = launch->slots[it->slot].source;
        if (source.size <= path.size || memcmp(source.at, path.at, path.size) != 0 || source.at[path.size] != '.') {
            break;
        }
        taken = add_part(it, *slot, (nj_span){source.at + path.size, source.size - path.size}, launch->slots[it->slot].type);
    }
    return taken;
}

/* Adds the slots of a leaf. They are validated and come next in the launch. */
static bool take_leaf(void *context, const nj_leaf *leaf)
{
    row_reading *it = context;
    nj_slot_facts slot = {.source = (int16_t)leaf->param, .leaf = nj_leaf_entry(leaf), .part = NJ_PART_VALUE};
    if (nj_is_compiled_in(leaf->type) || nj_leaf_hint(it->hints, leaf) == 1) {
        return true;
    }
    return nj_is_descriptor_name(leaf->type) ? take_descriptor(it, &slot, leaf->path)
                                             : add_slot(it, slot, it->facts->launch.slots[it->slot++].type);
}

static bool read_slots(row_reading *it)
{
    static const nj_span pointer = {(const unsigned char *)"*i8", 3};
    return nj_walk_signature(it->home->table, nj_row_signature(it->home->table, it->row), take_leaf, it) &&
           add_slot(it, (nj_slot_facts){.source = NJ_SOURCE_GLOBAL_SCRATCH, .leaf = -1}, pointer) &&
           add_slot(it, (nj_slot_facts){.source = NJ_SOURCE_PROFILE_SCRATCH, .leaf = -1}, pointer);
}

/* Copies the facts of the launch that need no conversion. */
static void take_launch(nj_row_facts *it, const nj_row_home *home)
{
    const nj_launch_facts *launch = &it->launch;
    it->entry.symbol = launch->symbol;
    it->entry.num_warps = launch->num_warps;
    it->entry.num_ctas = launch->num_ctas;
    it->facts = (nj_runnable_facts){
        .argument_count = home->argument_count,
        .slots = it->slots,
        .maps = it->maps,
        .block_threads = nj_warp_threads(home->arch) * launch->num_warps,
        .num_ctas = launch->num_ctas,
        .shared_bytes = launch->shared_bytes,
        .cooperative = launch->cooperative,
        .pdl = launch->pdl,
        .global_scratch = {launch->global_scratch_bytes, launch->global_scratch_align},
        .profile_scratch = {launch->profile_scratch_bytes, launch->profile_scratch_align},
    };
}

bool nj_row_facts_read(const nj_row_home *home, size_t row, nj_row_facts *facts, nj_error *error)
{
    const nj_table *table = home->table;
    row_reading it = {.home = home, .row = row, .facts = facts, .error = error,
                      .hints = &table->hint_sets[nj_table_at(table, NJ_COLUMN_HINTS, row)]};
    facts->facts.grid_count = 0;
    if (!nj_table_launch(table, nj_table_at(table, NJ_COLUMN_LAUNCH, row), &facts->launch, error)) {
        return false;
    }
    take_launch(facts, home);
    facts->entry.param_count = 0;
    return nj_check_packing(table, row, &facts->launch, error) && read_slots(&it) && read_grid(&it);
}

void nj_row_facts_close(nj_row_facts *facts)
{
    for (int i = 0; i < facts->facts.grid_count; i++) {
        free(facts->facts.grid[i].code);
    }
    nj_launch_close(&facts->launch);
}
