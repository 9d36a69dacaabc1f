#include "table/tuning.h"

#include "table/cost.h"

enum { TABLES_MAX = 64, PLAIN_NUMBERS = NJ_TUNING_KEYS_MAX, PLAIN_DIGITS = 18 };

#define INT_MAX_OF_KEYS ((uint64_t)INT64_MAX)
#define COUNT(fields) (sizeof fields / sizeof *fields)

/* The state of reading a part of the tuning. */
typedef struct {
    nj_table_reader *reader;
    nj_tuning_table table;
    nj_tuning_block block;
    nj_problem problem;
    nj_estimate estimate;
    nj_problem before; /* the problem that was read last */
    uint32_t number;   /* number of items taken so far */
    uint32_t last;     /* the case that was read last */
} nj_part;

/* The state of reading an array of numbers. */
typedef struct {
    nj_arena *arena;
    uint64_t most;
    size_t width; /* bytes of each */
} nj_numbers;

static bool add(nj_document *it, nj_table_reader *reader, const void *item, size_t size)
{
    return nj_arena_add(&reader->arena, item, size) || nj_no_memory(it->error);
}

/* Takes an array of at least one item. */
static bool take_some(nj_document *it, size_t most, nj_taker take, void *into)
{
    const unsigned char *start = it->at;
    return nj_take_array(it, most, take, into) &&
           (it->at - start > 2 || nj_break(it->error, "size", "0", "expected 1 to %zu items", most));
}

static bool refuse_index(uint32_t index, size_t size, const char *what, nj_error *error)
{
    return nj_break(error, "pool", nj_format("%u", (unsigned)index).text, "expected a %s below %zu", what, size);
}

/* Takes an index below `size`; `what` names the indexed items in errors. */
static bool take_index(nj_document *it, size_t size, const char *what, uint32_t *index)
{
    uint64_t number;
    if (!nj_take_count(it, 0, NJ_POOL_MAX, &number)) {
        return false;
    }
    *index = (uint32_t)number;
    return number < size || refuse_index(*index, size, what, it->error);
}

static bool take_key_item(nj_document *it, void *into)
{
    nj_tuning *tuning = &((nj_table_reader *)into)->table->tuning;
    return nj_take_text(it, &tuning->key[tuning->key_count]) && ++tuning->key_count > 0;
}

static bool take_key(nj_document *it, void *reader)
{
    return take_some(it, NJ_TUNING_KEYS_MAX, take_key_item, reader);
}

const char *const nj_bucket_names[NJ_BUCKET_COUNT] = {
    [NJ_BUCKET_POW2] = "pow2",
    [NJ_BUCKET_QUARTER_POW2] = "quarter_pow2",
    [NJ_BUCKET_EXACT] = "exact",
    [NJ_BUCKET_SIXTEENTH_POW2] = "sixteenth_pow2",
};

bool nj_bucket_named(nj_span name, nj_bucket *bucket)
{
    for (int i = 0; i < NJ_BUCKET_COUNT; i++) {
        if (nj_span_is(name, nj_bucket_names[i])) {
            *bucket = (nj_bucket)i;
            return true;
        }
    }
    return false;
}

static bool take_bucket(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    nj_document ahead = *it;
    nj_span raw = nj_take_raw(&ahead), name = {raw.at + 1, raw.size < 2 ? 0 : raw.size - 2};
    if (raw.at[0] == '"' && nj_bucket_named(name, &reader->table->tuning.bucket)) {
        it->at = ahead.at;
        return true;
    }
    return nj_break(it->error, "bucket", nj_quote(raw).text, "expected one of %s, %s, %s, %s", nj_bucket_names[0], nj_bucket_names[1],
                    nj_bucket_names[2], nj_bucket_names[3]);
}

_Static_assert(NJ_BUCKET_COUNT == 4, "the message of take_bucket names all");

static bool take_device_arch(nj_document *it, void *part)
{
    return nj_take_name(it, &((nj_part *)part)->table.arch);
}

static bool take_memory_bytes(nj_document *it, void *part)
{
    return nj_take_count(it, 1, INT_MAX_OF_KEYS, &((nj_part *)part)->table.memory_bytes);
}

static bool take_multiprocessors(nj_document *it, void *part)
{
    return nj_take_count(it, 1, INT_MAX_OF_KEYS, &((nj_part *)part)->table.multiprocessors);
}

static bool take_device_name(nj_document *it, void *part)
{
    return nj_take_line(it, &((nj_part *)part)->table.device);
}

static bool take_device(nj_document *it, void *part)
{
    static const nj_field fields[] = {
        {"arch", take_device_arch},
        {"memory_bytes", take_memory_bytes},
        {"multiprocessors", take_multiprocessors},
        {"name", take_device_name},
    };
    return nj_take_object(it, fields, COUNT(fields), part);
}

static bool take_block_case(nj_document *it, void *into)
{
    nj_part *part = into;
    nj_table_reader *reader = part->reader;
    uint32_t number;
    if (!take_index(it, reader->table->case_count, "case", &number)) {
        return false;
    }
    if (part->number++ > 0 && part->last >= number) {
        return nj_break(it->error, "order", nj_format("%u", (unsigned)number).text, "expected cases that ascend, each once");
    }
    if (reader->case_marks[number] != 0) {
        return nj_break(it->error, "duplicate", nj_format("%u", (unsigned)number).text, "expected each case in one block");
    }
    reader->case_marks[number] = 1;
    part->last = number;
    return add(it, reader, &number, sizeof number);
}

static bool take_block_cases(nj_document *it, void *into)
{
    nj_part *part = into;
    size_t mark = nj_arena_start(&part->reader->arena);
    part->number = 0;
    return take_some(it, NJ_POOL_MAX, take_block_case, part) &&
           NJ_END_LIST(it, part->reader, mark, part->block.cases, part->block.case_count);
}

static bool take_number(nj_document *it, void *into)
{
    nj_numbers *numbers = into;
    uint64_t number;
    return nj_take_count(it, 0, numbers->most, &number) &&
           (nj_arena_add(numbers->arena, &number, numbers->width) || nj_no_memory(it->error));
}

/* Takes an array of numbers from 0 to `most`, each stored in `width` bytes. Returns NULL with the error of the document filled. */
static const void *take_numbers(nj_document *it, nj_arena *arena, size_t count_max, uint64_t most, size_t width, uint32_t *count)
{
    nj_numbers numbers = {arena, most, width};
    size_t mark = nj_arena_start(arena);
    if (!nj_take_array(it, count_max, take_number, &numbers)) {
        return NULL;
    }
    const void *kept = nj_arena_end(arena, mark, width, count);
    if (kept == NULL) {
        nj_no_memory(it->error);
    }
    return kept;
}

static bool take_problem_at(nj_document *it, nj_part *part)
{
    nj_table_reader *reader = part->reader;
    uint32_t count, expected = reader->table->tuning.key_count;
    part->problem.at = take_numbers(it, &reader->arena, NJ_TUNING_KEYS_MAX, INT_MAX_OF_KEYS, sizeof *part->problem.at, &count);
    return part->problem.at != NULL &&
           (count == expected || nj_break(it->error, "size", nj_format("%u", (unsigned)count).text, "expected %u key values",
                                          (unsigned)expected));
}

/* Checks that the configs of a problem exist, and that each occurs once. */
static bool check_used(const nj_part *part, nj_error *error)
{
    nj_table_reader *reader = part->reader;
    reader->mark++;
    for (uint32_t i = 0; i < part->problem.count; i++) {
        uint32_t config = part->problem.configs[i];
        if (config >= reader->table->config_count) {
            return refuse_index(config, reader->table->config_count, "config", error);
        }
        if (reader->config_marks[config] == reader->mark) {
            return nj_break(error, "duplicate", nj_format("%u", (unsigned)config).text, "expected each config of a row once");
        }
        reader->config_marks[config] = reader->mark;
    }
    return part->problem.count > 0 || nj_break(error, "size", "0", "expected 1 to %d items", NJ_POOL_MAX);
}

static bool take_problem_configs(nj_document *it, nj_part *part)
{
    nj_problem *problem = &part->problem;
    problem->configs = take_numbers(it, &part->reader->arena, NJ_POOL_MAX, NJ_POOL_MAX, sizeof *problem->configs, &problem->count);
    return problem->configs != NULL && check_used(part, it->error);
}

static bool take_problem_behind(nj_document *it, nj_part *part)
{
    uint32_t count;
    part->problem.behind = take_numbers(it, &part->reader->arena, NJ_POOL_MAX, NJ_BEHIND_MAX, sizeof *part->problem.behind, &count);
    return part->problem.behind != NULL &&
           (count == part->problem.count || nj_break(it->error, "size", nj_format("%u", (unsigned)count).text,
                                                     "expected %u numbers, one for each config", (unsigned)part->problem.count));
}

static bool take_problem_part(nj_document *it, void *into)
{
    nj_part *part = into;
    switch (part->number++) {
    case 0: return take_problem_at(it, part);
    case 1: return take_problem_configs(it, part);
    default: return take_problem_behind(it, part);
    }
}

/* Returns whether a key follows another in lexicographic order. */
static bool ascends(const int64_t *before, const int64_t *at, uint32_t count)
{
    uint32_t i = 0;
    while (i < count && before[i] == at[i]) {
        i++;
    }
    return i < count && before[i] < at[i];
}

/* Reads past an array of a few short numbers, and returns their number; 0 for any other array. */
static uint32_t read_plain_numbers(const unsigned char **from, uint64_t most, uint64_t numbers[PLAIN_NUMBERS])
{
    const unsigned char *at = *from;
    uint32_t count = 0;
    if (*at != '[') {
        return 0;
    }
    do {
        const unsigned char *start = ++at;
        uint64_t number = 0;
        while (*at >= '0' && *at <= '9' && at - start < PLAIN_DIGITS) {
            number = 10 * number + (*at++ - '0');
        }
        if (at == start || number > most || count == PLAIN_NUMBERS) {
            return 0;
        }
        numbers[count++] = number;
    } while (*at == ',');
    *from = at + 1;
    return *at == ']' ? count : 0;
}

/* Fast path for a valid problem with three arrays of a few short numbers, as most are. Returns false, with nothing taken, for any other. */
static bool take_plain_problem(nj_document *it, nj_part *part)
{
    uint64_t keys[PLAIN_NUMBERS], configs[PLAIN_NUMBERS], behind[PLAIN_NUMBERS];
    /* validated JSON ends in a bracket, so every other byte has one after it */
    const unsigned char *at = it->at + (*it->at == '[');
    uint32_t expected = part->reader->table->tuning.key_count, count;
    if (read_plain_numbers(&at, INT_MAX_OF_KEYS, keys) != expected || *at++ != ',' ||
        (count = read_plain_numbers(&at, NJ_POOL_MAX, configs)) == 0 || *at++ != ',' ||
        read_plain_numbers(&at, NJ_BEHIND_MAX, behind) != count || *at != ']') {
        return false;
    }
    int64_t *kept = nj_arena_take(&part->reader->arena, expected * sizeof *kept + 2 * count * sizeof(uint32_t));
    if (kept == NULL) {
        return false;
    }
    uint32_t *kept_configs = (uint32_t *)(kept + expected), *kept_behind = kept_configs + count;
    memcpy(kept, keys, expected * sizeof *kept);
    for (uint32_t i = 0; i < count; i++) {
        kept_configs[i] = (uint32_t)configs[i];
        kept_behind[i] = (uint32_t)behind[i];
    }
    part->problem = (nj_problem){kept, count, kept_configs, kept_behind};
    if (!check_used(part, NULL)) {
        return false;
    }
    it->at = at + 1;
    return true;
}

static bool take_any_problem(nj_document *it, nj_part *part)
{
    part->number = 0;
    return nj_take_array(it, 3, take_problem_part, part) &&
           (part->number == 3 || nj_break(it->error, "size", nj_format("%u items", (unsigned)part->number).text, "expected 3 arrays"));
}

static bool take_problem(nj_document *it, void *into)
{
    nj_part *part = into;
    if (!take_plain_problem(it, part) && !take_any_problem(it, part)) {
        return false;
    }
    if (part->before.at != NULL && !ascends(part->before.at, part->problem.at, part->reader->table->tuning.key_count)) {
        return nj_break(it->error, "order", "a row that does not", "expected rows that ascend, each once");
    }
    part->before = part->problem;
    return add(it, part->reader, &part->problem, sizeof part->problem);
}

static bool take_problems(nj_document *it, void *into)
{
    nj_part *part = into;
    size_t mark = nj_arena_start(&part->reader->arena);
    const unsigned char *start = it->at;
    part->before = (nj_problem){0};
    if (!take_some(it, NJ_POOL_MAX, take_problem, part)) {
        return false;
    }
    part->block.problems_text = (nj_span){start, (size_t)(it->at - start)};
    return NJ_END_LIST(it, part->reader, mark, part->block.problems, part->block.problem_count);
}

static bool take_estimate_half(nj_document *it, void *into)
{
    nj_part *part = into;
    nj_estimate *estimate = &part->estimate;
    return part->number++ == 0 ? take_index(it, part->reader->table->config_count, "config", &estimate->config)
                               : nj_take_text(it, &estimate->picoseconds);
}

static bool take_estimate(nj_document *it, void *into)
{
    nj_part *part = into;
    part->number = 0;
    if (!nj_take_array(it, 2, take_estimate_half, part)) {
        return false;
    }
    if (part->number != 2) {
        return nj_break(it->error, "size", nj_format("%u items", (unsigned)part->number).text, "expected a config and an expression");
    }
    return add(it, part->reader, &part->estimate, sizeof part->estimate);
}

static bool check_estimates(const nj_part *part, nj_error *error)
{
    nj_table_reader *reader = part->reader;
    reader->mark++;
    for (uint32_t i = 0; i < part->block.estimate_count; i++) {
        uint32_t config = part->block.estimates[i].config;
        if (reader->config_marks[config] == reader->mark) {
            return nj_break(error, "duplicate", nj_format("%u", (unsigned)config).text, "expected one cost for each config");
        }
        reader->config_marks[config] = reader->mark;
    }
    return true;
}

static bool take_estimates(nj_document *it, void *into)
{
    nj_part *part = into;
    size_t mark = nj_arena_start(&part->reader->arena);
    const unsigned char *start = it->at;
    if (!nj_take_array(it, NJ_COSTS_MAX, take_estimate, part) ||
        !NJ_END_LIST(it, part->reader, mark, part->block.estimates, part->block.estimate_count)) {
        return false;
    }
    if (part->block.estimate_count > 0) {
        part->block.estimates_text = (nj_span){start, (size_t)(it->at - start)};
    }
    return check_estimates(part, it->error);
}

static bool take_block(nj_document *it, void *into)
{
    static const nj_field fields[] = {{"cases", take_block_cases}, {"costs", take_estimates}, {"rows", take_problems}};
    nj_table_reader *reader = ((nj_part *)into)->reader;
    nj_part part = {.reader = reader};
    return nj_take_object(it, fields, COUNT(fields), &part) && add(it, reader, &part.block, sizeof part.block);
}

static bool take_blocks(nj_document *it, void *into)
{
    nj_part *part = into;
    nj_table_reader *reader = part->reader;
    size_t mark = nj_arena_start(&reader->arena);
    memset(reader->case_marks, 0, sizeof *reader->case_marks * reader->table->case_count);
    return nj_take_array(it, NJ_POOL_MAX, take_block, part) &&
           NJ_END_LIST(it, reader, mark, part->table.blocks, part->table.block_count);
}

static bool take_table(nj_document *it, void *reader)
{
    static const nj_field fields[] = {{"blocks", take_blocks}, {"device", take_device}};
    nj_part part = {.reader = reader};
    return nj_take_object(it, fields, COUNT(fields), &part) && add(it, reader, &part.table, sizeof part.table);
}

static bool same_device(const nj_tuning_table *one, const nj_tuning_table *other)
{
    return one->multiprocessors == other->multiprocessors && one->memory_bytes == other->memory_bytes &&
           nj_span_equal(one->device, other->device) && nj_span_equal(one->arch, other->arch);
}

/* Checks that no two tables are of the same device. A quadratic loop suffices, because tables are few. */
static bool check_devices(const nj_tuning *tuning, nj_error *error)
{
    for (uint32_t i = 0; i < tuning->table_count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (same_device(&tuning->tables[i], &tuning->tables[j])) {
                return nj_break(error, "duplicate", nj_quote(tuning->tables[i].device).text, "expected each device of a tuning once");
            }
        }
    }
    return true;
}

static bool take_tables(nj_document *it, void *into)
{
    nj_table_reader *reader = into;
    nj_tuning *tuning = &reader->table->tuning;
    size_t mark = nj_arena_start(&reader->arena);
    return nj_take_array(it, TABLES_MAX, take_table, reader) &&
           NJ_END_LIST(it, reader, mark, tuning->tables, tuning->table_count) && check_devices(tuning, it->error);
}

/* Allocates `count` marks, all 0; NULL without memory. */
static uint32_t *make_marks(nj_arena *arena, uint32_t count)
{
    uint32_t *marks = nj_arena_take(arena, sizeof *marks * count);
    if (marks != NULL) {
        memset(marks, 0, sizeof *marks * count);
    }
    return marks;
}

bool nj_take_tuning(nj_document *it, nj_table_reader *reader)
{
    static const nj_field fields[] = {{"bucket", take_bucket}, {"key", take_key}, {"tables", take_tables}};
    if (nj_take_null(it)) {
        return true;
    }
    reader->case_marks = make_marks(&reader->arena, reader->table->case_count);
    reader->config_marks = make_marks(&reader->arena, reader->table->config_count);
    if (reader->case_marks == NULL || reader->config_marks == NULL) {
        return nj_no_memory(it->error);
    }
    return nj_take_object(it, fields, COUNT(fields), reader);
}
