#include "select/constexpr.h"

#include "base/dtype.h"

#include <stdlib.h>

bool nj_constant_same(const nj_constant *one, const nj_constant *other)
{
    if (one->kind != other->kind) {
        return false;
    }
    switch (one->kind) {
    case NJ_CONSTANT_NONE: return true;
    case NJ_CONSTANT_BOOL: return one->truth == other->truth;
    case NJ_CONSTANT_INT: return one->magnitude == other->magnitude && (one->negative == other->negative || one->magnitude == 0);
    case NJ_CONSTANT_FLOAT: return memcmp(&one->number, &other->number, sizeof one->number) == 0;
    case NJ_CONSTANT_TUPLE: break;
    case NJ_CONSTANT_TEXT:
    case NJ_CONSTANT_DTYPE:
    case NJ_CONSTANT_FUNCTION: return nj_span_equal(one->text, other->text);
    default: return true; /* a value that the binding has no constant for; no variant was built with one */
    }
    for (uint32_t i = 0; one->count == other->count && i < one->count; i++) {
        if (!nj_constant_same(&one->items[i], &other->items[i])) {
            return false;
        }
    }
    return one->count == other->count;
}

void nj_resolved_free(nj_resolved_items *made)
{
    while (made != NULL) {
        nj_resolved_items *next = made->next;
        free(made);
        made = next;
    }
}

/* Fills the known values that are tuples of `items` items, and returns their number. */
static size_t keep_tuples(const nj_constant *const *known, size_t count, uint32_t items, const nj_constant **kept)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (known[i]->kind == NJ_CONSTANT_TUPLE && known[i]->count == items) {
            kept[used++] = known[i];
        }
    }
    return used;
}

static bool resolve_tuple(const nj_constant *value, const nj_constant *const *known, size_t count, nj_resolved_items **made,
                          nj_constant *resolved)
{
    const nj_constant **kept = malloc((2 * count + 1) * sizeof *kept), **items = kept == NULL ? NULL : kept + count;
    nj_resolved_items *room = malloc(sizeof *room + value->count * sizeof *room->items);
    bool done = kept != NULL && room != NULL;
    size_t used = done ? keep_tuples(known, count, value->count, kept) : 0;
    if (room != NULL) {
        room->next = *made;
        *made = room;
    }
    for (uint32_t i = 0; done && i < value->count; i++) {
        for (size_t each = 0; each < used; each++) {
            items[each] = &kept[each]->items[i];
        }
        done = nj_constexpr_resolve(&value->items[i], items, used, made, &room->items[i]);
    }
    free(kept);
    *resolved = *value;
    if (done) {
        resolved->items = room->items;
    }
    return done;
}

bool nj_constexpr_resolve(const nj_constant *value, const nj_constant *const *known, size_t count, nj_resolved_items **made, nj_constant *resolved)
{
    *resolved = *value;
    if (value->kind == NJ_CONSTANT_TUPLE) {
        return resolve_tuple(value, known, count, made, resolved);
    }
    nj_dtype dtype = value->kind == NJ_CONSTANT_TEXT ? nj_dtype_read(value->text) : NJ_DTYPE_COUNT;
    bool dtypes = false, texts = false;
    for (size_t i = 0; dtype != NJ_DTYPE_COUNT && i < count; i++) {
        dtypes |= known[i]->kind == NJ_CONSTANT_DTYPE;
        texts |= known[i]->kind == NJ_CONSTANT_TEXT;
    }
    if (dtypes && !texts) {
        const char *name = nj_dtypes[dtype].constexpr_name;
        *resolved = (nj_constant){.kind = NJ_CONSTANT_DTYPE, .text = {(const unsigned char *)name, strlen(name)}};
    }
    return true;
}
