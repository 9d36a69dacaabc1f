/* Fuzz the order of configs: problems, estimates and a key out of the bytes. An order names each config of the near problems once,
 * whatever the numbers are. */
#include "select/config_order.h"
#include "select/spec.h"
#include "starve.h"

#include <stdlib.h>

enum { PROBLEMS_MAX = 8, CONFIGS_MAX = 6, ESTIMATES_MAX = 4, CONFIGS = 16 };

typedef struct {
    const unsigned char *at, *end;
} source;

static uint64_t draw(source *from, size_t width)
{
    uint64_t drawn = 0;
    for (size_t i = 0; i < width; i++) {
        drawn = drawn << 8 | (from->at < from->end ? *from->at++ : 0);
    }
    return drawn;
}

/* A number of a key: small, or any. */
static int64_t draw_number(source *from)
{
    static const int width[] = {1, 2, 5, 8};
    return (int64_t)(draw(from, (size_t)width[draw(from, 1) % 4]) & INT64_MAX);
}

/* Up to so many configs, each once. */
static uint32_t draw_configs(source *from, uint32_t most, uint32_t *configs)
{
    uint32_t count = 0, wanted = 1 + (uint32_t)draw(from, 1) % most;
    while (count < wanted) {
        uint32_t config = (uint32_t)draw(from, 1) % CONFIGS, place = 0;
        for (bool met = true; met; config = met ? (config + 1) % CONFIGS : config) {
            met = false;
            for (place = 0; place < count; place++) {
                met |= configs[place] == config;
            }
        }
        configs[count++] = config;
    }
    return count;
}

static void check_order(const nj_order *order)
{
    uint32_t met = 0;
    for (uint32_t i = 0; i < order->count; i++) {
        if (order->configs[i] >= CONFIGS || (met >> order->configs[i] & 1) != 0) {
            abort();
        }
        met |= UINT32_C(1) << order->configs[i];
    }
}

static void check_buckets(source *from)
{
    for (int bucket = NJ_BUCKET_POW2; bucket <= NJ_BUCKET_SIXTEENTH_POW2; bucket++) {
        int64_t value = (int64_t)draw(from, 8), rounded = nj_bucket_of((nj_bucket)bucket, value);
        if (rounded < 0 || nj_bucket_of((nj_bucket)bucket, rounded) != rounded) {
            abort();
        }
    }
}

/* Sums up what problems say, each with a weight: each config is met once, and none is ahead of the best. */
static void check_sums(source *from, const nj_tuning_block *block)
{
    nj_behind_row rows[PROBLEMS_MAX];
    uint32_t configs[PROBLEMS_MAX * CONFIGS_MAX];
    double sums[PROBLEMS_MAX * CONFIGS_MAX];
    for (uint32_t i = 0; i < block->problem_count; i++) {
        const nj_problem *problem = &block->problems[i];
        rows[i] = (nj_behind_row){(double)draw(from, 2) / 256, problem->count, problem->configs, problem->behind};
    }
    size_t count = nj_behind_in_sum(rows, block->problem_count, configs, sums);
    if (count == SIZE_MAX && fuzz_is_starved()) {
        return;
    }
    if (count > CONFIGS) {
        abort();
    }
    check_order(&(nj_order){configs, (uint32_t)count});
    for (size_t i = 0; i < count; i++) {
        if (!(sums[i] >= 0)) {
            abort();
        }
    }
}

static void check_devices(source *from)
{
    nj_tuning_table tables[3] = {{.block_count = 0}};
    nj_tuning tuning = {.table_count = 3, .tables = tables};
    for (int i = 0; i < 3; i++) {
        tables[i].device = (nj_span){from->at, from->at < from->end};
        tables[i].multiprocessors = draw(from, 1);
        tables[i].memory_bytes = draw(from, 2);
    }
    size_t place = nj_closest_table(&tuning, tables[2].device, tables[2].multiprocessors, tables[2].memory_bytes);
    if (place >= 3 || tables[place].multiprocessors != tables[2].multiprocessors || tables[place].memory_bytes != tables[2].memory_bytes) {
        abort();
    }
}

void fuzz_input(const unsigned char *bytes, size_t size)
{
    source from = {bytes, bytes + size};
    uint32_t configs[PROBLEMS_MAX][CONFIGS_MAX], behind[PROBLEMS_MAX][CONFIGS_MAX], costly[ESTIMATES_MAX];
    int64_t points[PROBLEMS_MAX][NJ_TUNING_KEYS_MAX], key[NJ_TUNING_KEYS_MAX];
    nj_problem problems[PROBLEMS_MAX];
    nj_estimate estimates[ESTIMATES_MAX];
    uint32_t keys = (uint32_t)draw(&from, 1) % (NJ_TUNING_KEYS_MAX + 1), flat = (uint32_t)draw(&from, 1);
    nj_tuning_block block = {.problem_count = 1 + (uint32_t)draw(&from, 1) % PROBLEMS_MAX, .problems = problems, .estimates = estimates};
    int64_t all[PROBLEMS_MAX * NJ_TUNING_KEYS_MAX];
    for (uint32_t i = 0; i < block.problem_count; i++) {
        for (uint32_t each = 0; each < keys; each++) {
            all[i * keys + each] = points[i][each] = draw_number(&from);
        }
        uint32_t count = draw_configs(&from, CONFIGS_MAX, configs[i]);
        for (uint32_t each = 0; each < count; each++) {
            behind[i][each] = (uint32_t)draw(&from, 3) % 100001;
        }
        problems[i] = (nj_problem){points[i], count, configs[i], behind[i]};
    }
    for (uint32_t i = 0; i < keys; i++) {
        key[i] = draw(&from, 1) % 2 ? points[0][i] : draw_number(&from);
    }
    check_buckets(&from);
    check_devices(&from);
    check_sums(&from, &block);
    if (flat % 2 == 1) {
        block.estimate_count = draw_configs(&from, ESTIMATES_MAX, costly);
        size_t left = (size_t)(from.end - from.at);
        for (uint32_t i = 0; i < block.estimate_count; i++) {
            size_t start = left * i / block.estimate_count, end = left * (i + 1) / block.estimate_count;
            estimates[i] = (nj_estimate){costly[i], {from.at + start, end - start}};
        }
    }
    nj_preference preference = {.key = key, .key_count = keys, .tuned.multiprocessors = flat};
    nj_order order;
    bool ranked = nj_order_configs(&block, &preference, &order);
    if (!ranked && !fuzz_is_starved()) {
        abort();
    }
    if (ranked) {
        check_order(&order);
    }
    size_t nearest = nj_nearest_point(all, block.problem_count, key, keys);
    if (nearest >= block.problem_count) {
        abort();
    }
    nj_order_clear(&order);
}
