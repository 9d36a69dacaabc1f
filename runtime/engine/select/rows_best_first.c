#include "select/rows_best_first.h"

#include "select/serving_rules.h"

#include <stdlib.h>

/* The search asks the caller whether to stop once in this many steps. */
#define LOOKS_BETWEEN 256

/* The rows of one case and config. */
typedef struct {
    uint32_t bits, rank, config;
    uint32_t case_number;
    size_t first, end;
} row_run;

/* A config, and its rank in an order. */
typedef struct {
    uint32_t config, rank;
} listed_config;

/* The ranks of the configs of a tuning block. */
typedef struct {
    bool made;
    listed_config *listed; /* sorted by config */
    uint32_t count;
} block_order;

/* A row that serves the call. */
typedef struct {
    uint32_t hint_count;
    size_t row;
} served_row;

typedef struct {
    nj_match *match;
    const nj_preference *preference;
    row_run *runs;
    size_t run_count, run_room;
    uint32_t *block_of;  /* for each case: the number of its tuning block plus 1, or 0. NULL until it is needed */
    block_order *orders; /* for each block */
    served_row *served;
    size_t served_count, served_room;
} search;

/* Counts a step of the search; false if the caller wants to stop. */
static bool look(nj_match *match)
{
    const nj_coerced_call *call = match->call;
    if (++match->looks % LOOKS_BETWEEN == 0 && call->interrupted != NULL && call->interrupted(call->context)) {
        match->stopped = true;
    }
    return !match->stopped;
}

/* Makes room for one more item; false without memory. */
static bool grow(void **items, size_t count, size_t *room, size_t size, nj_match *match)
{
    if (count == *room) {
        size_t larger = *room == 0 ? 16 : 2 * *room;
        void *moved = realloc(*items, larger * size);
        if (moved == NULL) {
            match->starved = true;
            return false;
        }
        *items = moved;
        *room = larger;
    }
    return true;
}

size_t nj_first_row(const nj_table *table, nj_column column, uint32_t number, size_t first, size_t end)
{
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (nj_table_at(table, column, middle) < number) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first;
}

/* Adds the configs of a case that the caller's settings allow. */
static bool add_case(search *it, uint32_t case_number)
{
    const nj_table *table = it->match->signatures->table;
    size_t row = nj_first_row(table, NJ_COLUMN_CASE, case_number, 0, table->rows);
    size_t last = nj_first_row(table, NJ_COLUMN_CASE, case_number + 1, row, table->rows);
    row_run run = {.case_number = case_number, .bits = it->match->signatures->bits[table->cases[case_number].signature]};
    while (row < last) {
        run.config = nj_table_at(table, NJ_COLUMN_CONFIG, row);
        run.first = row;
        run.end = row = nj_first_row(table, NJ_COLUMN_CONFIG, run.config + 1, row, last);
        if (!look(it->match)) {
            return false;
        }
        if (nj_match_allows(it->match, run.config)) {
            if (!grow((void **)&it->runs, it->run_count, &it->run_room, sizeof run, it->match)) {
                return false;
            }
            it->runs[it->run_count++] = run;
        }
    }
    return true;
}

/* Finds the configs of all cases that match the call. */
static bool find_runs(search *it)
{
    const nj_table *table = it->match->signatures->table;
    for (uint32_t i = 0; i < table->case_count; i++) {
        if (it->match->fits[table->cases[i].signature] && nj_match_at_point(it->match, i) && !add_case(it, i)) {
            return false;
        }
    }
    return true;
}

static int compare_runs(const void *one, const void *other)
{
    const row_run *a = one, *b = other;
    if (a->bits != b->bits) {
        return a->bits < b->bits ? -1 : 1;
    }
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    return a->first < b->first ? -1 : a->first > b->first;
}

static int compare_listed(const void *one, const void *other)
{
    const listed_config *a = one, *b = other;
    if (a->config != b->config) {
        return a->config < b->config ? -1 : 1;
    }
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* Finds the tuning block of each case; false without memory. */
static bool find_blocks(search *it)
{
    const nj_tuning_table *tuned = it->preference->tuned.table;
    uint32_t cases = it->match->signatures->table->case_count;
    it->block_of = calloc((size_t)cases + 1, sizeof *it->block_of);
    it->orders = calloc((size_t)tuned->block_count + 1, sizeof *it->orders);
    if (it->block_of == NULL || it->orders == NULL) {
        it->match->starved = true;
        return false;
    }
    for (uint32_t block = 0; block < tuned->block_count; block++) {
        for (uint32_t i = 0; i < tuned->blocks[block].case_count; i++) {
            if (tuned->blocks[block].cases[i] < cases) {
                it->block_of[tuned->blocks[block].cases[i]] = block + 1;
            }
        }
    }
    return true;
}

/* Ranks the configs of a block. */
static bool make_order(search *it, uint32_t block)
{
    block_order *made = &it->orders[block];
    nj_order order;
    made->made = nj_order_configs(&it->preference->tuned.table->blocks[block], it->preference, &order);
    made->listed = made->made ? malloc(((size_t)order.count + 1) * sizeof *made->listed) : NULL;
    if (made->listed != NULL) {
        for (uint32_t i = 0; i < order.count; i++) {
            made->listed[i] = (listed_config){order.configs[i], i};
        }
        made->count = order.count;
        qsort(made->listed, made->count, sizeof *made->listed, compare_listed);
    }
    nj_order_clear(&order);
    it->match->starved |= made->listed == NULL;
    return made->listed != NULL;
}

/* Returns the rank of a config. Configs that the order does not list come last, in the table's order. */
static uint32_t rank_in(const block_order *order, uint32_t config)
{
    uint32_t low = 0, high = order->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (order->listed[middle].config < config) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool listed = low < order->count && order->listed[low].config == config;
    return listed ? order->listed[low].rank : config + order->count - low;
}

/* Ranks and sorts runs whose ints have equal widths in sum. */
static bool rank_runs(search *it, size_t first, size_t end)
{
    bool tuned = it->preference != NULL && it->preference->tuned.table != NULL && end - first > 1;
    if (tuned && it->block_of == NULL && !find_blocks(it)) {
        return false;
    }
    for (size_t i = first; i < end; i++) {
        row_run *run = &it->runs[i];
        uint32_t block = tuned ? it->block_of[run->case_number] : 0;
        run->rank = run->config;
        if (block > 0) {
            if (!look(it->match) || (!it->orders[block - 1].made && !make_order(it, block - 1))) {
                return false;
            }
            run->rank = rank_in(&it->orders[block - 1], run->config);
        }
    }
    qsort(it->runs + first, end - first, sizeof *it->runs, compare_runs);
    return true;
}

/* Adds the rows of a run that serve the call. */
static bool add_served(search *it, const row_run *run)
{
    nj_match *match = it->match;
    const nj_table *table = match->signatures->table;
    if (!look(match)) {
        return false;
    }
    if (!nj_match_requires(match, run->case_number, run->config)) {
        return !match->starved;
    }
    const nj_value *derived = nj_match_derive(match, run->case_number, run->config);
    for (size_t row = run->first; row < run->end; row++) {
        uint32_t hints = nj_table_at(table, NJ_COLUMN_HINTS, row);
        if (!look(match)) {
            return false;
        }
        if (nj_match_derives(match, nj_table_at(table, NJ_COLUMN_DERIVED, row), derived) && nj_match_hinted(match, hints)) {
            if (!grow((void **)&it->served, it->served_count, &it->served_room, sizeof *it->served, match)) {
                return false;
            }
            it->served[it->served_count++] = (served_row){table->hint_sets[hints].count, row};
        }
    }
    return !match->starved;
}

static int compare_served(const void *one, const void *other)
{
    const served_row *a = one, *b = other;
    if (a->hint_count != b->hint_count) {
        return a->hint_count > b->hint_count ? -1 : 1;
    }
    return a->row < b->row ? -1 : a->row > b->row;
}

/* Takes the rows of runs of equal rank, those with the most hints first; false to end the search. */
static bool take_alike(search *it, size_t first, size_t end, nj_take_row take, void *context, bool *any)
{
    it->served_count = 0;
    for (size_t i = first; i < end; i++) {
        if (!add_served(it, &it->runs[i])) {
            return false;
        }
    }
    if (it->served_count > 1) {
        qsort(it->served, it->served_count, sizeof *it->served, compare_served);
    }
    for (size_t i = 0; i < it->served_count; i++) {
        *any = true;
        if (!take(context, it->served[i].row)) {
            return false;
        }
    }
    return true;
}

/* Goes through all runs, those with narrow ints first. */
static void take_rows(search *it, nj_take_row take, void *context, bool *any)
{
    bool more = find_runs(it);
    if (it->run_count > 0) {
        qsort(it->runs, it->run_count, sizeof *it->runs, compare_runs);
    }
    for (size_t first = 0, end; more && first < it->run_count; first = end) {
        for (end = first; end < it->run_count && it->runs[end].bits == it->runs[first].bits; end++) {
        }
        more = rank_runs(it, first, end);
        for (size_t start = first, stop; more && start < end; start = stop) {
            for (stop = start; stop < end && it->runs[stop].rank == it->runs[start].rank; stop++) {
            }
            more = take_alike(it, start, stop, take, context, any);
        }
    }
}

static void clear_search(search *it)
{
    for (uint32_t i = 0; it->orders != NULL && i < it->preference->tuned.table->block_count; i++) {
        free(it->orders[i].listed);
    }
    free(it->orders);
    free(it->block_of);
    free(it->runs);
    free(it->served);
}

nj_verdict nj_rows_best_first(nj_match *match, const nj_preference *preference, nj_take_row take, void *context)
{
    search it = {.match = match, .preference = preference};
    bool any = false;
    take_rows(&it, take, context, &any);
    clear_search(&it);
    if (match->starved || match->stopped) {
        return match->starved ? NJ_NO_MEMORY : NJ_STOPPED;
    }
    return any ? NJ_SERVED : NJ_UNSERVED;
}

static bool take_first(void *context, size_t row)
{
    *(size_t *)context = row;
    return false;
}

nj_verdict nj_best_row(nj_match *match, const nj_preference *preference, size_t *row)
{
    return nj_rows_best_first(match, preference, take_first, row);
}

bool nj_config_rank(nj_match *match, const nj_preference *preference, uint32_t case_number, uint32_t config, uint32_t *rank)
{
    search it = {.match = match, .preference = preference};
    *rank = config;
    if (preference == NULL || preference->tuned.table == NULL) {
        return true;
    }
    bool ranked = find_blocks(&it);
    uint32_t block = ranked ? it.block_of[case_number] : 0;
    if (block > 0) {
        ranked = make_order(&it, block - 1);
        *rank = ranked ? rank_in(&it.orders[block - 1], config) : config;
    }
    clear_search(&it);
    return ranked;
}
