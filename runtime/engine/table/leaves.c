#include "table/leaves.h"

typedef struct {
    nj_leaf leaf;
    nj_signature_taker take;
    void *context;
} signature_walk;

static bool take_of_param(void *context, nj_span path, nj_span type)
{
    signature_walk *it = context;
    it->leaf.path = path;
    it->leaf.type = type;
    return it->take(it->context, &it->leaf);
}

bool nj_walk_signature(const nj_table *table, uint32_t signature, nj_signature_taker take, void *context)
{
    signature_walk it = {.take = take, .context = context};
    bool goes_on = true;
    for (uint32_t i = 0, place = 0; goes_on && i < table->param_count; i++) {
        if (!table->params[i].is_constexpr) {
            it.leaf = (nj_leaf){.param = i, .name = table->params[i].name, .param_type = table->signatures[signature][place++]};
            goes_on = nj_walk_leaves(it.leaf.param_type, it.leaf.name, take_of_param, &it);
        }
    }
    return goes_on;
}

/* Returns the number of entries of a tuple: its leaves and inner tuples. */
static uint32_t count_entries(nj_span tuple)
{
    nj_span rest = {tuple.at + 1, tuple.size - 2}, member;
    uint32_t count = 0;
    while (nj_next_member(&rest, &member)) {
        count += 1 + (nj_is_tuple_type(member) ? count_entries(member) : 0);
    }
    return count;
}

/* Returns the index of the entry of a tuple's type at a path such as `.1.0`. */
static uint32_t find_entry(nj_span tuple, nj_span places)
{
    nj_span rest = {tuple.at + 1, tuple.size - 2}, member;
    size_t at = 1;
    uint32_t place = 0, entry = 0;
    for (; at < places.size && places.at[at] != '.'; at++) {
        place = 10 * place + (uint32_t)(places.at[at] - '0');
    }
    while (nj_next_member(&rest, &member) && place-- > 0) {
        entry += 1 + (nj_is_tuple_type(member) ? count_entries(member) : 0);
    }
    return at == places.size ? entry : entry + 1 + find_entry(member, (nj_span){places.at + at, places.size - at});
}

int16_t nj_leaf_entry(const nj_leaf *leaf)
{
    nj_span places = {leaf->path.at + leaf->name.size, leaf->path.size - leaf->name.size};
    return places.size == 0 ? -1 : (int16_t)find_entry(leaf->param_type, places);
}

uint8_t nj_leaf_hint(const nj_hint_set *hints, const nj_leaf *leaf)
{
    uint8_t hint = 0;
    for (uint32_t i = 0; hint == 0 && i < hints->count; i++) {
        hint = nj_span_equal(hints->hints[i].leaf, leaf->path) ? hints->hints[i].value : 0;
    }
    return hint;
}
