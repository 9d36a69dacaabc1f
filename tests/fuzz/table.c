/* Fuzz the reader of variant tables: the bytes as a value, as a table, and as the JSON and the columns of one that is laid out
 * right. The last four bytes are the numbers of its rows and images. */
#include "table/expression_programs.h"
#include "table/verify_rows.h"
#include "parts.h"
#include "starve.h"

#include <stdlib.h>

static void walk_constant(const nj_constant *value, int depth)
{
    if (value->kind > NJ_CONSTANT_TUPLE || depth > 8) {
        abort();
    }
    for (uint32_t i = 0; value->kind == NJ_CONSTANT_TUPLE && i < value->count; i++) {
        walk_constant(&value->items[i], depth + 1);
    }
}

static bool look_at_leaf(void *context, nj_span path, nj_span type)
{
    static unsigned char decoded[1 << 16];
    nj_constant value;
    size_t *leaves = context;
    /* a leaf is a type by itself */
    if (path.size == 0 || !nj_is_type(type) || (nj_is_constant_type(type) && !nj_type_constant(type, decoded, &value))) {
        abort();
    }
    return ++*leaves < NJ_LEAVES_MAX + 1;
}

/* Goes through what was read: everything that an index points to is there. */
static void walk_table(const nj_table *table)
{
    nj_expressions expressions = {.table = table};
    nj_span text;
    uint32_t count = 0;
    while (nj_next_expression(&expressions, &text)) {
        bool numbered = expressions.config == NJ_NO_CONFIG || table->configs[expressions.config].requires_program == (int32_t)count;
        if (count++ >= table->program_count || !numbered) {
            abort();
        }
    }
    for (uint32_t i = 0; i < table->case_count; i++) {
        for (uint32_t axis = 0; axis < table->axis_count; axis++) {
            walk_constant(&table->axes[axis].values[table->cases[i].places[axis]], 0);
        }
    }
    for (uint32_t i = 0; i < table->signature_count; i++) {
        for (uint32_t j = 0; j < table->runtime_count; j++) {
            size_t leaves = 0;
            nj_walk_leaves(table->signatures[i][j], (nj_span){(const unsigned char *)"x", 1}, look_at_leaf, &leaves);
        }
    }
    for (size_t row = 0; row < table->rows; row++) {
        const nj_constant *derived = table->derived_values[nj_table_at(table, NJ_COLUMN_DERIVED, row)];
        const nj_config *config = &table->configs[nj_table_at(table, NJ_COLUMN_CONFIG, row)];
        for (uint32_t i = 0; i < table->derived_count; i++) {
            walk_constant(&derived[i], 0);
        }
        for (uint32_t i = 0; i < config->option_count; i++) {
            walk_constant(&config->options[i].value, 0);
        }
    }
}

/* Reads each row's launch, and what it packs: as the check of all does. */
static bool check_rows(const nj_table *table)
{
    bool all = true;
    for (size_t row = 0; row < table->rows; row++) {
        nj_error error = {.code = NJ_OK};
        nj_launch_facts launch;
        bool good = nj_table_launch(table, nj_table_at(table, NJ_COLUMN_LAUNCH, row), &launch, &error) &&
                    nj_check_packing(table, row, &launch, &error);
        fuzz_expect(good, &error, true);
        nj_launch_close(&launch);
        all &= good;
    }
    return all;
}

static void read_table(nj_span raw, size_t rows, size_t images)
{
    nj_error error = {.code = NJ_OK};
    nj_table table;
    bool good = nj_table_read(raw, rows, images, &table, &error);
    fuzz_expect(good, &error, true);
    if (good) {
        walk_table(&table);
        bool right = nj_table_check(&table, &error);
        fuzz_expect(right, &error, true);
        if (right && !check_rows(&table) && !fuzz_is_starved()) {
            abort();
        }
    }
    nj_table_close(&table);
    /* with nobody to tell, the same is read */
    if (nj_table_read(raw, rows, images, &table, NULL) != good && !fuzz_is_starved()) {
        abort();
    }
    nj_table_close(&table);
}

static void read_constant(nj_span raw)
{
    nj_error error = {.code = NJ_OK};
    nj_lone_constant constant;
    bool good = nj_constant_read(raw, &constant, &error);
    fuzz_expect(good, &error, true);
    if (good) {
        walk_constant(&constant.value, 0);
    }
    nj_constant_close(&constant);
}

void fuzz_input(const unsigned char *bytes, size_t size)
{
    read_constant((nj_span){bytes, size});
    if (size < 4) {
        return;
    }
    size_t rest = size - 4, rows = nj_u16(bytes + rest), images = nj_u16(bytes + rest + 2);
    read_table((nj_span){bytes, rest}, rows, images);
    nj_span raw = fuzz_lay_out((nj_span){bytes, rest}, rows);
    if (raw.at != NULL) {
        read_table(raw, rows, images);
    }
    free((void *)raw.at);
}
