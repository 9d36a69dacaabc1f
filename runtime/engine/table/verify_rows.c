#include "table/verify_rows.h"

#include "table/cost.h"
#include "table/leaves.h"
#include "table/sorted_names.h"
#include "table/table_reader.h"

#include <stdlib.h>

enum {
    /* the CUtensorMapDataType of cuda.h for padded 4-bit values */
    PADDED_FP4 = 14,
    /* a CUtensorMapSwizzle of cuda.h, 16 << 3 bytes wide; later values count as this wide */
    SWIZZLE_128 = 3,
};

/* Returns whether the map's block divides the type's: Triton copies a wide block in parts, and splits it among CTAs. */
static bool covers(const nj_descriptor_name *type, const nj_tensor_map *map)
{
    bool covers = true;
    for (uint32_t i = 0; covers && i < type->rank; i++) {
        uint32_t whole = type->block[i] << (map->fp4_padded && i == type->rank - 1);
        covers = whole % map->block[i] == 0;
    }
    return covers;
}

nj_packing_fault nj_map_lacks(nj_span type, const nj_tensor_map *map)
{
    nj_descriptor_name described = nj_descriptor_parts(type);
    if (map->rank != described.rank) {
        return nj_format("a block of %u dimensions", (unsigned)described.rank);
    }
    const nj_dtype_facts *dtype = &nj_dtypes[described.dtype];
    unsigned bytes = dtype->bytes, element = map->fp4_padded ? PADDED_FP4 : dtype->map_type;
    if (map->fp4_padded && (bytes != 1 || map->swizzle != SWIZZLE_128)) {
        return nj_format("padding of 4-bit values in elements of one byte, swizzled 128 bytes wide");
    }
    if (map->element_bytes != bytes || map->element_type != element) {
        return nj_format("elements of %u bytes and type %u", bytes, element);
    }
    if (!covers(&described, map)) {
        return nj_format("a block that the descriptor's is made up of");
    }
    unsigned inner = map->block[map->rank - 1] * bytes, width = 16u << (map->swizzle < SWIZZLE_128 ? map->swizzle : SWIZZLE_128);
    if (!map->fp4_padded && inner % 16 != 0) {
        return nj_format("a block of a multiple of 16 bytes in its last dimension");
    }
    if (map->swizzle >= 1 && inner > width) {
        return nj_format("a block at most as wide as its swizzle, %u bytes", width);
    }
    return nj_format("%s", "");
}

/* The state of checking the layout of a row. */
typedef struct {
    const nj_launch_facts *launch;
    const nj_hint_set *set;
    const nj_named *hints; /* sorted */
    uint32_t hinted;       /* number of leaves with a hint so far */
    uint32_t slot, slot_count;
    uint32_t map;
    nj_packing_fault fault;
} nj_walk;

static bool lacks(nj_walk *walk, nj_packing_fault fault)
{
    walk->fault = fault;
    return false;
}

/* Returns the start of a path or a type without quotes; neither can contain unprintable characters. */
static nj_text show(nj_span text)
{
    return nj_format("%.*s", (int)(text.size < 80 ? text.size : 80), (const char *)text.at);
}

static bool starts_with(nj_span text, nj_span start)
{
    return text.size >= start.size && memcmp(text.at, start.at, start.size) == 0;
}

/* Returns whether a slot has the type of the descriptor's part that it names, and an existing dimension. */
static bool is_part(nj_span part, nj_span slot_type, const nj_descriptor_name *described)
{
    if (nj_span_is(part, ".base")) {
        bool is_pointer = slot_type.size > 0 && slot_type.at[0] == '*';
        return is_pointer && nj_span_equal((nj_span){slot_type.at + 1, slot_type.size - 1}, described->element);
    }
    if (nj_span_is(part, ".map")) {
        return nj_span_is(slot_type, "tensormap");
    }
    if (nj_span_is(part, ".pads_nan") || nj_span_is(part, ".rounds_tf32")) {
        return nj_span_is(slot_type, "i1");
    }
    unsigned dim = part.size == 0 ? 0 : (unsigned)part.at[part.size - 1] - '0';
    nj_span field = {part.at, part.size - (part.size > 0)};
    bool is_shape = nj_span_is(field, ".shape."), is_stride = nj_span_is(field, ".stride.");
    return dim < described->rank && ((is_shape && (nj_span_is(slot_type, "i32") || nj_span_is(slot_type, "i64"))) ||
                                     (is_stride && nj_span_is(slot_type, "i64")));
}

/* Checks the next tensor map against a descriptor. */
static bool take_map(nj_walk *walk, nj_span path, nj_span type)
{
    const nj_launch_facts *launch = walk->launch;
    if (walk->map == launch->map_count || !nj_span_equal(launch->maps[walk->map].source, path)) {
        return lacks(walk, nj_format("a tensor map of %s", show(path).text));
    }
    nj_packing_fault fault = nj_map_lacks(type, &launch->maps[walk->map++]);
    return fault.text[0] == 0 || lacks(walk, nj_format("%.90s in the tensor map of %.40s, which is %.40s", fault.text,
                                                       show(path).text, show(type).text));
}

/* Checks the slots of a descriptor, at least one. */
static bool take_parts(nj_walk *walk, nj_span path, nj_span type)
{
    nj_descriptor_name described = nj_descriptor_parts(type);
    uint32_t start = walk->slot;
    bool right = true;
    for (; walk->slot < walk->slot_count; walk->slot++) {
        const nj_layout_slot *slot = &walk->launch->slots[walk->slot];
        if (!starts_with(slot->source, path) || slot->source.size == path.size || slot->source.at[path.size] != '.') {
            break;
        }
        nj_span part = {slot->source.at + path.size, slot->source.size - path.size};
        right = is_part(part, slot->type, &described);
        if (!right) {
            break;
        }
        if (nj_span_is(part, ".map") && !take_map(walk, path, type)) {
            return false;
        }
    }
    return (right && walk->slot > start) || lacks(walk, nj_format("parts of %.80s, which is %.80s", show(path).text, show(type).text));
}

static bool take_leaf(void *context, const nj_leaf *leaf)
{
    nj_walk *walk = context;
    nj_span path = leaf->path, type = leaf->type;
    uint32_t number = nj_names_find(walk->hints, walk->set->count, path);
    walk->hinted += number != NJ_NO_NAME;
    if (nj_is_compiled_in(type) || (number != NJ_NO_NAME && walk->set->hints[number].value == 1)) {
        return true;
    }
    if (nj_is_descriptor_name(type)) {
        return take_parts(walk, path, type);
    }
    const nj_layout_slot *slot = &walk->launch->slots[walk->slot];
    bool right = walk->slot < walk->slot_count && nj_span_equal(slot->source, path) && nj_span_equal(slot->type, type);
    walk->slot++;
    return right || lacks(walk, nj_format("%.80s as %.80s", show(path).text, show(type).text));
}

/* Returns whether the last two slots are the scratch pointers, as they must be. */
static bool ends_with_scratch(const nj_launch_facts *launch)
{
    static const char *const sources[] = {NJ_GLOBAL_SCRATCH, NJ_PROFILE_SCRATCH};
    bool ends = launch->slot_count >= 2;
    for (uint32_t i = 0; ends && i < 2; i++) {
        const nj_layout_slot *slot = &launch->slots[launch->slot_count - 2 + i];
        ends = nj_span_is(slot->source, sources[i]) && slot->type.size > 0 && slot->type.at[0] == '*';
    }
    return ends;
}

typedef struct {
    nj_span path;
    bool found;
} nj_search;

static bool compare_leaf(void *context, const nj_leaf *leaf)
{
    nj_search *search = context;
    search->found |= nj_span_equal(search->path, leaf->path);
    return !search->found;
}

/* Checks that each hint names a leaf. */
static bool check_hints(const nj_table *table, uint32_t signature, const nj_hint_set *set, nj_error *error)
{
    nj_search search = {.found = true};
    for (uint32_t i = 0; search.found && i < set->count; i++) {
        search = (nj_search){set->hints[i].leaf, false};
        nj_walk_signature(table, signature, compare_leaf, &search);
    }
    return search.found || nj_break(error, "param", nj_quote(search.path).text, "expected hints of leaves of the signature");
}

static bool refuse_packing(const nj_walk *walk, nj_error *error)
{
    nj_text got = nj_format("%s", "");
    for (uint32_t i = 0; i < walk->launch->slot_count && i < 6; i++) {
        const nj_layout_slot *slot = &walk->launch->slots[i];
        got = nj_format("%.120s%s%.40s: %.40s", got.text, i == 0 ? "" : ", ", show(slot->source).text, show(slot->type).text);
    }
    return nj_break(error, "layout", got.text, "expected %s", walk->fault.text);
}

/* Checks the slots and tensor maps of a launch against a signature and its sorted hints. */
static bool check_packing(const nj_table *table, uint32_t signature, const nj_hint_set *set, const nj_named *hints,
                          const nj_launch_facts *launch, nj_error *error)
{
    bool has_scratch = ends_with_scratch(launch);
    nj_walk walk = {launch, set, hints, 0, 0, launch->slot_count - (has_scratch ? 2 : 0), 0, {""}};
    bool packed = nj_walk_signature(table, signature, take_leaf, &walk);
    /* a hint that names no leaf causes the other faults, so it is reported first */
    if ((!packed || walk.hinted < set->count) && !check_hints(table, signature, set, error)) {
        return false;
    }
    if (packed && (walk.slot != walk.slot_count || !has_scratch)) {
        packed = lacks(&walk, nj_format("no more than the leaves of the signature, then " NJ_GLOBAL_SCRATCH " and " NJ_PROFILE_SCRATCH
                                        " as pointers"));
    }
    if (packed && walk.map != launch->map_count) {
        packed = lacks(&walk, nj_format("%u tensor maps", (unsigned)walk.map));
    }
    return packed || refuse_packing(&walk, error);
}

/* Fills `names` with the leaves of hints, sorted for look-up. */
static void sort_hints(const nj_hint_set *set, nj_named *names)
{
    for (uint32_t i = 0; i < set->count; i++) {
        names[i] = (nj_named){set->hints[i].leaf, i};
    }
    nj_names_sort(names, set->count);
}

static bool check_row(const nj_table *table, size_t row, const nj_launch_facts *launch, nj_named *names, nj_error *error)
{
    const nj_hint_set *set = &table->hint_sets[nj_table_at(table, NJ_COLUMN_HINTS, row)];
    uint32_t signature = nj_row_signature(table, row);
    sort_hints(set, names);
    if (check_packing(table, signature, set, names, launch, error)) {
        return true;
    }
    return nj_at(error, nj_format("row %zu", row).text);
}

bool nj_check_packing(const nj_table *table, size_t row, const nj_launch_facts *launch, nj_error *error)
{
    nj_named names[NJ_TABLE_SMALL_MAX];
    return check_row(table, row, launch, names, error);
}

/* The facts of a row that determine how its params are packed. */
typedef struct {
    uint32_t launch, signature, hints, row;
} nj_packed;

static int compare_packed(const void *a, const void *b)
{
    const nj_packed *left = a, *right = b;
    if (left->launch != right->launch) {
        return left->launch < right->launch ? -1 : 1;
    }
    if (left->signature != right->signature) {
        return left->signature < right->signature ? -1 : 1;
    }
    if (left->hints != right->hints) {
        return left->hints < right->hints ? -1 : 1;
    }
    return left->row < right->row ? -1 : left->row > right->row;
}

/* Checks one launch and its rows; of rows with equal signature and hints only one. */
static bool check_launch(const nj_table *table, uint32_t number, const nj_packed *packed, size_t count, nj_named *names, nj_error *error)
{
    nj_launch_facts launch;
    bool right = nj_table_launch(table, number, &launch, error);
    for (size_t i = 0; right && i < count; i++) {
        bool again = i > 0 && packed[i].signature == packed[i - 1].signature && packed[i].hints == packed[i - 1].hints;
        right = again || check_row(table, packed[i].row, &launch, names, error);
    }
    nj_launch_close(&launch);
    return right;
}

static bool check_launches(const nj_table *table, nj_packed *packed, nj_named *names, nj_error *error)
{
    size_t next = 0;
    bool right = true;
    for (size_t row = 0; row < table->rows; row++) {
        uint32_t signature = table->cases[nj_table_at(table, NJ_COLUMN_CASE, row)].signature;
        packed[row] = (nj_packed){nj_table_at(table, NJ_COLUMN_LAUNCH, row), signature, nj_table_at(table, NJ_COLUMN_HINTS, row), (uint32_t)row};
    }
    qsort(packed, table->rows, sizeof *packed, compare_packed);
    for (uint32_t number = 0; right && number < table->launch_count; number++) {
        size_t start = next;
        while (next < table->rows && packed[next].launch == number) {
            next++;
        }
        right = check_launch(table, number, packed + start, next - start, names, error);
    }
    return right;
}

static bool check_layouts(const nj_table *table, nj_layout_slot *slots, nj_error *error)
{
    uint32_t count;
    for (uint32_t i = 0; i < table->layout_count; i++) {
        if (!nj_read_layout(table->layouts[i], slots, &count, error)) {
            nj_note_step(error, "$.layouts[%u]", (unsigned)i);
            return false;
        }
    }
    return true;
}

static bool check_estimate(nj_span words, uint32_t key_count, nj_error *error)
{
    return nj_is_cost(words, key_count) || nj_break(error, "program", nj_quote(words).text,
                                                    "expected the cost of a config: a postfix program over the key's numbers");
}

static bool check_estimates(const nj_table *table, nj_error *error)
{
    bool right = true;
    for (uint32_t i = 0; right && i < table->tuning.table_count; i++) {
        const nj_tuning_table *tuned = &table->tuning.tables[i];
        for (uint32_t j = 0; right && j < tuned->block_count; j++) {
            for (uint32_t k = 0; right && k < tuned->blocks[j].estimate_count; k++) {
                right = check_estimate(tuned->blocks[j].estimates[k].picoseconds, table->tuning.key_count, error);
            }
        }
    }
    return right;
}

bool nj_table_check(const nj_table *table, nj_error *error)
{
    nj_packed *packed = malloc(sizeof *packed * (table->rows + 1));
    nj_named *names = malloc(sizeof *names * NJ_TABLE_SMALL_MAX);
    nj_layout_slot *slots = malloc(sizeof *slots * NJ_LAYOUT_SLOTS_MAX);
    bool ready = (packed != NULL && names != NULL && slots != NULL) || nj_no_memory(error);
    bool right = ready && check_layouts(table, slots, error) && check_estimates(table, error) && check_launches(table, packed, names, error);
    free(packed);
    free(names);
    free(slots);
    return right;
}
