#include "table/launch_facts.h"

#include "json/text.h"
#include "table/table_reader.h"

#include <stdlib.h>

enum {
    BOX_MAX = 256,
    ELEMENT_BYTES_MAX = 8,
    ENUM_MAX = 31, /* more than the values of any enum of cuda.h; a driver refuses those that it does not know */
    WARPS_MAX = 32,
    CTAS_MAX = 16,
    SHARED_BYTES_MAX = 1 << 20,
    SCRATCH_BYTES_MAX = 1 << 30,
    SCRATCH_ALIGN_MAX = 1 << 20,
};

#define COUNT(fields) (sizeof fields / sizeof *fields)

/* The state of reading a launch. */
typedef struct {
    nj_launch_facts *launch;
    nj_arena arena;
    nj_tensor_map map;
} nj_part;

static nj_launch_facts *launch_of(void *part)
{
    return ((nj_part *)part)->launch;
}

static nj_tensor_map *map_of(void *part)
{
    return &((nj_part *)part)->map;
}

static bool take_number(nj_document *it, uint64_t least, uint64_t most, uint32_t *number)
{
    uint64_t taken;
    bool right = nj_take_count(it, least, most, &taken);
    *number = right ? (uint32_t)taken : 0;
    return right;
}

static bool take_align(nj_document *it, uint32_t *align)
{
    return take_number(it, 1, SCRATCH_ALIGN_MAX, align) &&
           ((*align & (*align - 1)) == 0 ||
            nj_break(it->error, "size", nj_format("%u", (unsigned)*align).text, "expected an alignment that is a power of two"));
}

static bool take_byte(nj_document *it, uint64_t least, uint64_t most, uint8_t *byte)
{
    uint32_t number;
    bool right = take_number(it, least, most, &number);
    *byte = (uint8_t)number;
    return right;
}

static bool take_box(nj_document *it, void *part)
{
    nj_tensor_map *map = map_of(part);
    uint32_t number;
    bool right = take_number(it, 1, BOX_MAX, &number);
    map->block[map->rank++] = (uint16_t)number;
    return right;
}

static bool take_block(nj_document *it, void *part)
{
    return nj_take_array(it, NJ_DESCRIPTOR_RANK_MAX, take_box, part) &&
           (map_of(part)->rank > 0 || nj_break(it->error, "size", "0", "expected a block of 1 to %d dimensions", NJ_DESCRIPTOR_RANK_MAX));
}

static bool take_element_bytes(nj_document *it, void *part)
{
    return take_byte(it, 1, ELEMENT_BYTES_MAX, &map_of(part)->element_bytes);
}

static bool take_element_type(nj_document *it, void *part)
{
    return take_byte(it, 0, ENUM_MAX, &map_of(part)->element_type);
}

static bool take_fp4_padded(nj_document *it, void *part)
{
    return nj_take_flag(it, &map_of(part)->fp4_padded);
}

static bool take_source(nj_document *it, void *part)
{
    return nj_take_line(it, &map_of(part)->source);
}

static bool take_swizzle(nj_document *it, void *part)
{
    return take_byte(it, 0, ENUM_MAX, &map_of(part)->swizzle);
}

static const nj_field map_fields[] = {
    {"block", take_block},           {"element_bytes", take_element_bytes}, {"element_type", take_element_type},
    {"fp4_padded", take_fp4_padded}, {"source", take_source},               {"swizzle", take_swizzle},
};

static bool take_map(nj_document *it, void *into)
{
    nj_part *part = into;
    part->map = (nj_tensor_map){.rank = 0};
    return nj_take_object(it, map_fields, COUNT(map_fields), part) &&
           (nj_arena_add(&part->arena, &part->map, sizeof part->map) || nj_no_memory(it->error));
}

static bool take_maps(nj_document *it, void *into)
{
    nj_part *part = into;
    nj_launch_facts *launch = part->launch;
    size_t mark = nj_arena_start(&part->arena);
    return nj_take_array(it, NJ_LAYOUT_SLOTS_MAX, take_map, part) && NJ_END_LIST(it, part, mark, launch->maps, launch->map_count);
}

static bool take_cooperative(nj_document *it, void *part)
{
    return nj_take_flag(it, &launch_of(part)->cooperative);
}

static bool take_global_align(nj_document *it, void *part)
{
    return take_align(it, &launch_of(part)->global_scratch_align);
}

static bool take_global_bytes(nj_document *it, void *part)
{
    return take_number(it, 0, SCRATCH_BYTES_MAX, &launch_of(part)->global_scratch_bytes);
}

static bool take_layout(nj_document *it, void *part)
{
    return take_number(it, 0, NJ_POOL_MAX, &launch_of(part)->layout);
}

static bool take_ctas(nj_document *it, void *part)
{
    return take_number(it, 1, CTAS_MAX, &launch_of(part)->num_ctas);
}

static bool take_warps(nj_document *it, void *part)
{
    return take_number(it, 1, WARPS_MAX, &launch_of(part)->num_warps);
}

static bool take_pdl(nj_document *it, void *part)
{
    return nj_take_flag(it, &launch_of(part)->pdl);
}

static bool take_profile_align(nj_document *it, void *part)
{
    return take_align(it, &launch_of(part)->profile_scratch_align);
}

static bool take_profile_bytes(nj_document *it, void *part)
{
    return take_number(it, 0, SCRATCH_BYTES_MAX, &launch_of(part)->profile_scratch_bytes);
}

static bool take_shared_bytes(nj_document *it, void *part)
{
    return take_number(it, 0, SHARED_BYTES_MAX, &launch_of(part)->shared_bytes);
}

static bool take_symbol(nj_document *it, void *part)
{
    return nj_take_line(it, &launch_of(part)->symbol);
}

static const nj_field launch_fields[] = {
    {"cooperative", take_cooperative},
    {"global_scratch_align", take_global_align},
    {"global_scratch_bytes", take_global_bytes},
    {"layout", take_layout},
    {"num_ctas", take_ctas},
    {"num_warps", take_warps},
    {"pdl", take_pdl},
    {"profile_scratch_align", take_profile_align},
    {"profile_scratch_bytes", take_profile_bytes},
    {"shared_bytes", take_shared_bytes},
    {"symbol", take_symbol},
    {"tensor_maps", take_maps},
};

static bool take_launch(nj_document *it, void *part)
{
    return nj_take_object(it, launch_fields, COUNT(launch_fields), part);
}

const char *nj_launch_field(size_t number)
{
    return number < COUNT(launch_fields) ? launch_fields[number].name : NULL;
}

const char *nj_tensor_map_field(size_t number)
{
    return number < COUNT(map_fields) ? map_fields[number].name : NULL;
}

static bool refuse_layout(nj_span text, nj_error *error)
{
    return nj_break(error, "layout", nj_quote(text).text, "expected a layout of at most %d params, each source:type", NJ_LAYOUT_SLOTS_MAX);
}

/* Splits a word of a layout into source and type. */
static bool read_slot(nj_span word, nj_layout_slot *slot)
{
    const unsigned char *colon = word.size == 0 ? NULL : memchr(word.at, ':', word.size);
    if (colon == NULL) {
        return false;
    }
    slot->source = (nj_span){word.at, (size_t)(colon - word.at)};
    slot->type = (nj_span){colon + 1, word.size - slot->source.size - 1};
    return slot->type.size == 0 || memchr(slot->type.at, ':', slot->type.size) == NULL;
}

bool nj_read_layout(nj_span text, nj_layout_slot *slots, uint32_t *count, nj_error *error)
{
    nj_span rest = text;
    *count = 0;
    if (!nj_is_printable(text)) {
        return refuse_layout(text, error);
    }
    for (bool more = text.size > 0; more;) {
        const unsigned char *space = rest.size == 0 ? NULL : memchr(rest.at, ' ', rest.size);
        nj_span word = {rest.at, space == NULL ? rest.size : (size_t)(space - rest.at)};
        if (*count == NJ_LAYOUT_SLOTS_MAX || !read_slot(word, &slots[*count])) {
            return refuse_layout(text, error);
        }
        ++*count;
        more = space != NULL;
        rest = (nj_span){rest.at + word.size + more, rest.size - word.size - more};
    }
    return true;
}

/* Returns an upper bound of the number of slots in a layout. */
static size_t slots_in(nj_span text)
{
    size_t count = 1;
    for (size_t i = 0; i < text.size && count < NJ_LAYOUT_SLOTS_MAX; i++) {
        count += text.at[i] == ' ';
    }
    return count;
}

/* Reads the layout of a launch. */
static bool take_slots(nj_part *part, const nj_span *layouts, uint32_t layout_count, nj_error *error)
{
    nj_launch_facts *launch = part->launch;
    if (launch->layout >= layout_count) {
        nj_text got = nj_format("%u", (unsigned)launch->layout);
        return nj_break(error, "pool", got.text, "expected the number of a layout, below %u", (unsigned)layout_count);
    }
    nj_span text = layouts[launch->layout];
    nj_layout_slot *slots = nj_arena_take(&part->arena, sizeof *slots * slots_in(text));
    launch->slots = slots;
    return slots == NULL ? nj_no_memory(error) : nj_read_layout(text, slots, &launch->slot_count, error);
}

bool nj_launch_read(nj_span raw, const nj_span *layouts, uint32_t layout_count, nj_launch_facts *launch, nj_error *error)
{
    nj_part part = {.launch = launch};
    *launch = (nj_launch_facts){0};
    bool read = nj_document_take(&launch->document, raw, take_launch, &part, error) && take_slots(&part, layouts, layout_count, error);
    launch->memory = nj_arena_keep(&part.arena);
    launch->document.error = NULL;
    return read;
}

/* Prefixes the place of an error, which is relative to the launch, with the place of the launch. */
static void note_launch(nj_error *error, size_t number)
{
    if (error != NULL) {
        size_t start = error->where[0] == '$';
        memmove(error->where, error->where + start, sizeof error->where - start);
        nj_note_step(error, "$.launches[%zu]", number);
    }
}

bool nj_table_launch(const nj_table *table, size_t number, nj_launch_facts *launch, nj_error *error)
{
    bool read = nj_launch_read(table->launches[number].raw, table->layouts, table->layout_count, launch, error);
    if (!read) {
        note_launch(error, number);
    }
    return read;
}

void nj_launch_close(nj_launch_facts *launch)
{
    nj_document_close(&launch->document);
    nj_arena_free(launch->memory);
    *launch = (nj_launch_facts){0};
}
