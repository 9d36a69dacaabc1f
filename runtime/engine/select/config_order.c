#include "select/config_order.h"

#include "select/estimate.h"

#include <math.h>
#include <stdlib.h>

/* A problem this many octaves farther than the nearest one has 1/e of its weight. */
#define REACH_OCTAVES 0.3
/* Problems farther away, in octaves behind the nearest, do not count: each would have less than 2 % of its weight. */
#define SPAN_OCTAVES (4 * REACH_OCTAVES)
/* A row counts a config that it did not measure as this much slower than its slowest, in thousandths of an octave: twice the time. */
#define ABSENT_MILLIOCTAVES 1000
/* Distances and sums are rounded to this many steps in a unit, so that rounding errors of logarithms do not separate equal ones. */
#define DISTANCE_STEPS 1e9
#define SUM_STEPS 1e6

/* A config, and the sum that ranks it. */
typedef struct {
    uint32_t config;
    double sum;
    size_t place; /* index in the order in which configs were added */
} ranked_config;

/* The configs to rank, and a hash table to find them. */
typedef struct {
    ranked_config *ranks; /* room for all configs that rows name */
    size_t count;
    size_t *places; /* by the hash of a config's number: its index in `ranks` plus 1, or 0 in an empty cell */
    size_t mask;
} met_configs;

static double logarithm(int64_t value)
{
    return log2(value == 0 ? 0.5 : (double)value);
}

/* Returns the distance of a point from a key, whose logarithms are given. */
static double distance_of(const int64_t *point, const double *key, uint32_t key_count)
{
    double sum = 0;
    for (uint32_t i = 0; i < key_count; i++) {
        sum += fabs(logarithm(point[i]) - key[i]);
    }
    return floor(sum * DISTANCE_STEPS + 0.5) / DISTANCE_STEPS;
}

static void take_logarithms(const int64_t *key, uint32_t key_count, double *logarithms)
{
    for (uint32_t i = 0; i < key_count; i++) {
        logarithms[i] = logarithm(key[i]);
    }
}

size_t nj_nearest_point(const int64_t *points, size_t count, const int64_t *key, uint32_t key_count)
{
    double logarithms[NJ_TUNING_KEYS_MAX], least = INFINITY;
    size_t nearest = 0;
    for (size_t i = 0; i < count; i++) {
        if (memcmp(points + i * key_count, key, key_count * sizeof *key) == 0) {
            return i;
        }
    }
    take_logarithms(key, key_count, logarithms);
    for (size_t i = 0; i < count; i++) {
        double distance = distance_of(points + i * key_count, logarithms, key_count);
        nearest = distance < least ? i : nearest;
        least = distance < least ? distance : least;
    }
    return nearest;
}

/* Returns the problem with exactly the call's key; UINT32_MAX if there is none. */
static uint32_t equal_problem(const nj_tuning_block *block, const nj_preference *by)
{
    for (uint32_t i = 0; i < block->problem_count; i++) {
        if (memcmp(block->problems[i].at, by->key, by->key_count * sizeof *by->key) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* Fills the distance of each problem, and returns the nearest problem; ties go to the first. */
static uint32_t measure(const nj_tuning_block *block, const nj_preference *by, double *distances)
{
    double key[NJ_TUNING_KEYS_MAX];
    uint32_t nearest = 0;
    take_logarithms(by->key, by->key_count, key);
    for (uint32_t i = 0; i < block->problem_count; i++) {
        distances[i] = distance_of(block->problems[i].at, key, by->key_count);
        nearest = distances[i] < distances[nearest] ? i : nearest;
    }
    return nearest;
}

/* Returns the cell of a config in `places`; it holds 0 if the config was not added. */
static size_t *place_of(const met_configs *all, uint32_t config)
{
    size_t at = (size_t)((uint64_t)config * UINT64_C(0x9e3779b97f4a7c15) >> 32) & all->mask;
    while (all->places[at] != 0 && all->ranks[all->places[at] - 1].config != config) {
        at = (at + 1) & all->mask;
    }
    return &all->places[at];
}

/* Adds each new config to the ranks. */
static void enter_configs(const uint32_t *configs, uint32_t count, met_configs *all)
{
    for (uint32_t i = 0; i < count; i++) {
        size_t *place = place_of(all, configs[i]);
        if (*place == 0) {
            all->ranks[all->count] = (ranked_config){.config = configs[i], .place = all->count};
            *place = ++all->count;
        }
    }
}

/* Allocates room for `named` configs; false without memory. */
static bool make_room(size_t named, met_configs *all)
{
    size_t room = 16;
    while (room < 2 * named) {
        room *= 2;
    }
    *all = (met_configs){.mask = room - 1};
    all->ranks = malloc((named + 1) * sizeof *all->ranks);
    all->places = calloc(room, sizeof *all->places);
    return all->ranks != NULL && all->places != NULL;
}

static void clear_met(met_configs *all)
{
    free(all->ranks);
    free(all->places);
}

/* Adds to the sum of each config of a row how far it is behind, less the row's distance for unmeasured configs. Returns that distance,
 * weighted, which the caller adds to every sum. */
static double add_word(const nj_behind_row *row, met_configs *all)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < row->count; i++) {
        most = row->behind[i] > most ? row->behind[i] : most;
    }
    double absent = (double)((int64_t)most + ABSENT_MILLIOCTAVES);
    for (uint32_t i = 0; i < row->count; i++) {
        all->ranks[*place_of(all, row->configs[i]) - 1].sum += row->weight * ((double)row->behind[i] - absent);
    }
    return row->weight * absent;
}

/* Adds the configs of rows, and sums up how far each is behind. */
static void sum_up(const nj_behind_row *rows, size_t count, met_configs *all)
{
    /* The sum of a config that no row measured. Adding it once to all avoids a pass over all configs for each row. */
    double nowhere = 0.0;
    for (size_t i = 0; i < count; i++) {
        enter_configs(rows[i].configs, rows[i].count, all);
    }
    for (size_t i = 0; i < count; i++) {
        nowhere += add_word(&rows[i], all);
    }
    for (size_t i = 0; i < all->count; i++) {
        all->ranks[i].sum = nowhere + all->ranks[i].sum;
    }
}

static size_t count_named(const nj_behind_row *rows, size_t count)
{
    size_t named = 0;
    for (size_t i = 0; i < count; i++) {
        named += rows[i].count;
    }
    return named;
}

size_t nj_behind_in_sum(const nj_behind_row *rows, size_t count, uint32_t *configs, double *sums)
{
    met_configs all;
    bool made = make_room(count_named(rows, count), &all);
    if (made) {
        sum_up(rows, count, &all);
        for (size_t i = 0; i < all.count; i++) {
            configs[i] = all.ranks[i].config;
            sums[i] = all.ranks[i].sum;
        }
    }
    clear_met(&all);
    return made ? all.count : SIZE_MAX;
}

/* Orders configs by their sums; ties keep their order. */
static int compare_ranks(const void *one, const void *other)
{
    const ranked_config *a = one, *b = other;
    if (a->sum != b->sum) {
        return a->sum < b->sum ? -1 : 1;
    }
    return a->place < b->place ? -1 : a->place > b->place;
}

/* Copies the configs, in their order; false without memory. */
static bool list(const met_configs *all, nj_order *order)
{
    order->configs = malloc((all->count + 1) * sizeof *order->configs);
    order->count = order->configs == NULL ? 0 : (uint32_t)all->count;
    for (uint32_t i = 0; i < order->count; i++) {
        order->configs[i] = all->ranks[i].config;
    }
    return order->configs != NULL;
}

/* Orders configs by their estimated times; ties keep the order of the block. */
static bool rank_by_cost(const nj_tuning_block *block, const nj_preference *by, met_configs *all)
{
    nj_estimate_facts facts = {by->key, by->key_count, by->tuned.multiprocessors};
    int64_t *costs = malloc(((size_t)block->estimate_count + 1) * sizeof *costs);
    bool made = make_room(block->estimate_count, all) && costs != NULL;
    for (uint32_t i = 0; made && i < block->estimate_count; i++) {
        int64_t cost = nj_estimate_of(block->estimates[i].picoseconds, &facts);
        size_t to = all->count++;
        for (; to > 0 && costs[to - 1] > cost; to--) {
            costs[to] = costs[to - 1];
            all->ranks[to] = all->ranks[to - 1];
        }
        costs[to] = cost;
        all->ranks[to] = (ranked_config){.config = block->estimates[i].config};
    }
    free(costs);
    return made;
}

/* Fills a row for each problem near the key, and returns their number. */
static size_t near_rows(const nj_tuning_block *block, const double *distances, uint32_t nearest, nj_behind_row *rows)
{
    size_t count = 0;
    for (uint32_t i = 0; i < block->problem_count; i++) {
        const nj_problem *problem = &block->problems[i];
        double farther = distances[i] - distances[nearest];
        if (farther < SPAN_OCTAVES) {
            rows[count++] = (nj_behind_row){exp(-farther / REACH_OCTAVES), problem->count, problem->configs, problem->behind};
        }
    }
    return count;
}

/* Orders configs by the measurements of near problems. */
static bool rank_by_near(const nj_tuning_block *block, const nj_preference *by, met_configs *all)
{
    double *distances = malloc(((size_t)block->problem_count + 1) * sizeof *distances);
    nj_behind_row *rows = malloc(((size_t)block->problem_count + 1) * sizeof *rows);
    bool made = distances != NULL && rows != NULL;
    *all = (met_configs){0};
    if (made) {
        const uint32_t first = measure(block, by, distances);
        const nj_problem *nearest = &block->problems[first];
        size_t count = near_rows(block, distances, first, rows);
        made = make_room(count_named(rows, count), all);
        if (made) {
            enter_configs(nearest->configs, nearest->count, all);
        }
        if (made && count > 1) {
            sum_up(rows, count, all);
            for (size_t i = 0; i < all->count; i++) {
                all->ranks[i].sum = floor(all->ranks[i].sum * SUM_STEPS + 0.5);
            }
            qsort(all->ranks, all->count, sizeof *all->ranks, compare_ranks);
        }
    }
    free(distances);
    free(rows);
    return made;
}

bool nj_order_configs(const nj_tuning_block *block, const nj_preference *preference, nj_order *order)
{
    met_configs all;
    uint32_t equal = equal_problem(block, preference);
    bool made;
    *order = (nj_order){0};
    if (equal != UINT32_MAX) {
        const nj_problem *problem = &block->problems[equal];
        made = make_room(problem->count, &all);
        if (made) {
            enter_configs(problem->configs, problem->count, &all);
        }
    } else if (block->estimate_count > 0) {
        made = rank_by_cost(block, preference, &all);
    } else if (block->problem_count > 0) {
        made = rank_by_near(block, preference, &all);
    } else {
        return true;
    }
    made = made && list(&all, order);
    clear_met(&all);
    return made;
}

void nj_order_clear(nj_order *order)
{
    free(order->configs);
    *order = (nj_order){0};
}

size_t nj_closest_table(const nj_tuning *tuning, nj_span name, uint64_t multiprocessors, uint64_t memory_bytes)
{
    int64_t size[2] = {(int64_t)multiprocessors, (int64_t)memory_bytes};
    double least = INFINITY, key[2];
    size_t nearest = 0;
    take_logarithms(size, 2, key);
    for (size_t i = 0; i < tuning->table_count; i++) {
        const nj_tuning_table *table = &tuning->tables[i];
        int64_t known[2] = {(int64_t)table->multiprocessors, (int64_t)table->memory_bytes};
        double distance = memcmp(known, size, sizeof size) == 0 ? -1.0 : distance_of(known, key, 2);
        nearest = distance < least ? i : nearest;
        least = distance < least ? distance : least;
    }
    const nj_tuning_table *like = &tuning->tables[nearest];
    for (size_t i = nearest; i < tuning->table_count; i++) {
        const nj_tuning_table *table = &tuning->tables[i];
        bool alike = table->multiprocessors == like->multiprocessors && table->memory_bytes == like->memory_bytes;
        if (alike && nj_span_equal(table->device, name)) {
            return i;
        }
    }
    return nearest;
}
