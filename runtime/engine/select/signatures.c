#include "select/signatures.h"

#include <stdlib.h>

/* Returns the number of a type of a param, after giving it one if it is new; -1 with `error` filled. Tries the number `likely` first. */
static int number_type(nj_param_types *param, nj_span text, nj_ids *ids, int likely, nj_error *error)
{
    if (likely < param->type_count && nj_span_equal(param->spelled[likely], text)) {
        return likely;
    }
    for (int i = 0; i < param->type_count; i++) {
        if (nj_span_equal(param->spelled[i], text)) {
            return i;
        }
    }
    if (param->type_count == NJ_TYPES_MAX) {
        nj_note_difference(error, nj_format("%d or more", NJ_TYPES_MAX + 1).text, "expected at most %d types of one param", NJ_TYPES_MAX);
        return -1;
    }
    int number = param->type_count++;
    nj_type *type = &param->types[number];
    param->spelled[number] = text;
    if (!nj_type_read(text, ids, type, error)) {
        return -1;
    }
    if (type->tags == NJ_BIT(NJ_TAG_POINTER)) {
        param->pointers[type->pointee] |= UINT64_C(1) << number;
        param->pointers[NJ_DTYPE_NONE] |= UINT64_C(1) << number;
    }
    param->tuple |= type->tags == NJ_BIT(NJ_TAG_TUPLE);
    return number;
}

/* Returns whether all types but None are pointers, at least one. */
static bool takes_addresses(const nj_param_types *param)
{
    bool any = false;
    for (int i = 0; i < param->type_count; i++) {
        uint16_t tags = param->types[i].tags;
        if (tags != NJ_BIT(NJ_TAG_NONE) && tags != NJ_BIT(NJ_TAG_POINTER)) {
            return false;
        }
        any |= tags == NJ_BIT(NJ_TAG_POINTER);
    }
    return any;
}

/* Room for the types of a param while they are counted. */
typedef struct {
    nj_type types[NJ_TYPES_MAX];
    nj_span spelled[NJ_TYPES_MAX];
} type_room;

/* Moves the types of a param to memory that it owns. Returns false with `error` filled and the types freed. */
static bool keep_types(nj_param_types *param, const type_room *room, nj_error *error)
{
    size_t count = param->type_count;
    param->types = malloc((count + 1) * sizeof *param->types);
    param->spelled = malloc((count + 1) * sizeof *param->spelled);
    if (param->types == NULL || param->spelled == NULL) {
        for (size_t i = 0; i < count; i++) {
            free(room->types[i].entries);
        }
        param->type_count = 0;
        return nj_no_memory(error);
    }
    memcpy(param->types, room->types, count * sizeof *param->types);
    memcpy(param->spelled, room->spelled, count * sizeof *param->spelled);
    param->address = takes_addresses(param);
    return true;
}

/* Numbers the types of a runtime param over all signatures. */
static bool read_param(nj_signatures *it, uint32_t number, nj_error *error)
{
    const nj_table *table = it->table;
    nj_param_types *param = &it->params[number];
    type_room room;
    int type = 0;
    param->types = room.types;
    param->spelled = room.spelled;
    for (uint32_t i = 0; i < table->signature_count && type >= 0; i++) {
        type = number_type(param, table->signatures[i][number], it->ids, type, error);
        if (type >= 0) {
            it->numbers[(size_t)i * table->runtime_count + number] = (uint8_t)type;
            it->bits[i] += nj_type_bits(&room.types[type]);
        }
    }
    return keep_types(param, &room, error) && type >= 0;
}

bool nj_param_init(nj_param_types *param, const nj_span *types, size_t count, nj_ids *ids, nj_error *error)
{
    type_room room;
    int type = 0;
    *param = (nj_param_types){.types = room.types, .spelled = room.spelled};
    for (size_t i = 0; i < count && type >= 0; i++) {
        type = number_type(param, types[i], ids, type, error);
    }
    return keep_types(param, &room, error) && type >= 0;
}

void nj_param_clear(nj_param_types *param)
{
    for (int type = 0; type < param->type_count; type++) {
        nj_type_clear(&param->types[type]);
    }
    free(param->types);
    free(param->spelled);
}

static nj_known_name *known_name(const nj_signatures *it, nj_span name)
{
    uint64_t hash = it->seed ^ name.size;
    for (size_t i = 0; i < name.size; i++) {
        hash = (hash ^ name.at[i]) * UINT64_C(0x100000001b3);
    }
    size_t at = (size_t)(hash ^ hash >> 32) & it->mask;
    while (it->known[at].name.at != NULL && !nj_span_equal(it->known[at].name, name)) {
        at = (at + 1) & it->mask;
    }
    return &it->known[at];
}

const nj_known_name *nj_signatures_find(const nj_signatures *signatures, nj_span name)
{
    return known_name(signatures, name);
}

static void know_name(const nj_signatures *it, nj_span name, int32_t place)
{
    nj_known_name *there = known_name(it, name);
    if (there->name.at == NULL) {
        *there = (nj_known_name){name, place};
    }
}

static bool know_names(nj_signatures *it)
{
    const nj_table *table = it->table;
    size_t room = 16;
    while (room < 2 * ((size_t)table->axis_count + table->param_count)) {
        room *= 2;
    }
    it->known = calloc(room, sizeof *it->known);
    it->mask = room - 1;
    it->seed = (uint64_t)(uintptr_t)it->known * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t i = 0; it->known != NULL && i < table->axis_count; i++) {
        know_name(it, table->axes[i].name, -1 - (int32_t)i);
    }
    for (uint32_t i = 0; it->known != NULL && i < table->param_count; i++) {
        know_name(it, table->params[i].name, (int32_t)i);
    }
    return it->known != NULL;
}

bool nj_signatures_init(nj_signatures *it, const nj_table *table, nj_ids *ids, nj_error *error)
{
    size_t runtime = table->runtime_count, signatures = table->signature_count;
    uint32_t number = 0;
    *it = (nj_signatures){.table = table, .ids = ids};
    it->params = calloc(runtime + 1, sizeof *it->params);
    it->numbers = malloc(signatures * runtime + 1);
    it->bits = calloc(signatures + 1, sizeof *it->bits);
    if (it->params == NULL || it->numbers == NULL || it->bits == NULL || !know_names(it)) {
        return nj_no_memory(error);
    }
    for (uint32_t i = 0; i < table->param_count; i++) {
        if (!table->params[i].is_constexpr) {
            it->params[number].place = i;
            if (!read_param(it, number++, error)) {
                return false;
            }
        }
    }
    return true;
}

void nj_signatures_clear(nj_signatures *it)
{
    for (uint32_t i = 0; it->params != NULL && i < it->table->runtime_count; i++) {
        nj_param_clear(&it->params[i]);
    }
    free(it->params);
    free(it->numbers);
    free(it->bits);
    free(it->known);
    *it = (nj_signatures){0};
}
