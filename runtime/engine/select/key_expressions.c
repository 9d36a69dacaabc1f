#include "select/key_expressions.h"

#include "expr/postfix.h"
#include "table/find_by_name.h"

#include <stdlib.h>


/* A set of programs. */
typedef struct {
    nj_program *programs; /* owned */
    uint32_t count, room;
    uint32_t *places; /* hash table: a program's number plus 1, or 0 in an empty cell */
    size_t mask;
} program_set;

/* The values that replace the names of an expression. */
typedef struct {
    const nj_spec *spec;
    const nj_config *config;
    const uint32_t *point; /* for each axis, the number of its value; NULL leaves type axes open */
    bool starved;
} ground;

bool nj_program_copy(const nj_instruction *code, size_t length, nj_program *program)
{
    nj_instruction *copy = malloc((length + 1) * sizeof *copy);
    if (copy != NULL) {
        memcpy(copy, code, length * sizeof *copy);
    }
    *program = (nj_program){.length = (uint32_t)length, .code = copy};
    return copy != NULL;
}

static uint64_t hash_of(const nj_instruction *code, size_t length)
{
    uint64_t hash = length;
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ code[i].op ^ (uint64_t)code[i].operand << 8) * UINT64_C(0x9e3779b97f4a7c15);
        hash = (hash ^ hash >> 32 ^ (uint64_t)code[i].operand) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return hash ^ hash >> 32;
}

static bool same_code(const nj_program *program, const nj_instruction *code, size_t length)
{
    bool same = program->length == length;
    for (size_t i = 0; same && i < length; i++) {
        same = program->code[i].op == code[i].op && program->code[i].operand == code[i].operand;
    }
    return same;
}

static uint32_t *place_in(const program_set *set, const nj_instruction *code, size_t length)
{
    size_t at = (size_t)hash_of(code, length) & set->mask;
    while (set->places[at] != 0 && !same_code(&set->programs[set->places[at] - 1], code, length)) {
        at = (at + 1) & set->mask;
    }
    return &set->places[at];
}

/* Makes room for one more program, and keeps the hash table at most half full; false without memory. */
static bool set_grow(program_set *set)
{
    if (set->count < set->room) {
        return true;
    }
    uint32_t room = set->room == 0 ? 16 : 2 * set->room;
    nj_program *programs = realloc(set->programs, room * sizeof *programs);
    set->programs = programs != NULL ? programs : set->programs;
    uint32_t *places = programs == NULL ? NULL : calloc(2 * (size_t)room, sizeof *places);
    if (places == NULL) {
        return false;
    }
    free(set->places);
    set->places = places;
    set->mask = 2 * (size_t)room - 1;
    set->room = room;
    for (uint32_t i = 0; i < set->count; i++) {
        *place_in(set, programs[i].code, programs[i].length) = i + 1;
    }
    return true;
}

static void set_clear(program_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        free(set->programs[i].code);
    }
    free(set->programs);
    free(set->places);
}

/* Adds a program. Returns 1, 0 if the set contains it already, or -1 with `error` filled. */
static int set_add(program_set *set, const nj_assembly *made, nj_error *error)
{
    if (!set_grow(set)) {
        nj_no_memory(error);
        return -1;
    }
    uint32_t *place = place_in(set, made->code, made->length);
    if (*place != 0) {
        return 0;
    }
    if (set->count == NJ_PROGRAMS_MAX) {
        nj_note_break(error, "size", "more", "expected at most %d expressions over arguments that choose a variant", NJ_PROGRAMS_MAX);
        return -1;
    }
    if (!nj_program_copy(made->code, made->length, &set->programs[set->count])) {
        nj_no_memory(error);
        return -1;
    }
    *place = ++set->count;
    return 1;
}

static bool push_axis(ground *it, uint32_t axis, nj_instruction *push)
{
    const nj_table *table = it->spec->signatures.table;
    if (it->point != NULL) {
        return nj_push_constant(it->spec->signatures.ids, &table->axes[axis].values[it->point[axis]], push, &it->starved);
    }
    /* an open axis has a slot after those of the arguments */
    *push = (nj_instruction){.op = NJ_OP_LOAD, .operand = (int64_t)it->spec->argument_count + axis};
    return true;
}

static bool find_name(void *context, nj_span name, nj_instruction *push)
{
    ground *it = context;
    const nj_table *table = it->spec->signatures.table;
    if (nj_is_quoted(name)) {
        return nj_push_quoted(it->spec->signatures.ids, name, push, &it->starved);
    }
    if (nj_span_is(name, "arch")) {
        *push = (nj_instruction){.op = NJ_OP_CONST_INT, .operand = it->spec->arch};
        return true;
    }
    const nj_constant *value = nj_config_value(it->config, name);
    if (value != NULL) {
        return nj_push_constant(it->spec->signatures.ids, value, push, &it->starved);
    }
    const nj_known_name *known = nj_signatures_find(&it->spec->signatures, name);
    if (known->name.at == NULL) {
        return false;
    }
    if (known->place < 0 && table->axes[-1 - known->place].is_type) {
        return push_axis(it, (uint32_t)(-1 - known->place), push);
    }
    size_t place = known->place < 0 ? nj_param_place(table, name) : (size_t)known->place;
    if (known->place >= 0 && table->params[place].is_constexpr && table->params[place].has_default) {
        return nj_push_constant(it->spec->signatures.ids, &table->params[place].fallback, push, &it->starved);
    }
    *push = (nj_instruction){.op = NJ_OP_LOAD, .operand = (int64_t)place};
    return place < table->param_count;
}

/* Returns whether a program loads an open axis if `axes`, or else a runtime param. */
static bool loads(const nj_spec *spec, const nj_assembly *made, bool axes)
{
    const nj_table *table = spec->signatures.table;
    for (size_t i = 0; i < made->length; i++) {
        size_t slot = (size_t)made->code[i].operand;
        if (made->code[i].op != NJ_OP_LOAD) {
            continue;
        }
        if (axes ? slot >= spec->argument_count : slot < table->param_count && !table->params[slot].is_constexpr) {
            return true;
        }
    }
    return false;
}

static bool can_stand(void *context, nj_span name)
{
    nj_instruction push;
    return find_name(context, name, &push);
}

/* Returns whether a word of a program is a name. */
static bool is_name(nj_span word)
{
    static const char *const others[] = {"true", "false", "none", "and", "or"};
    bool letter = word.size > 0 && ((*word.at >= 'a' && *word.at <= 'z') || (*word.at >= 'A' && *word.at <= 'Z') || *word.at == '_');
    for (size_t i = 0; letter && i < sizeof others / sizeof *others; i++) {
        letter = !nj_span_is(word, others[i]);
    }
    return letter && word.at[word.size - 1] != ')';
}

static int compare(nj_span one, nj_span other)
{
    int order = memcmp(one.at, other.at, one.size < other.size ? one.size : other.size);
    return order != 0 ? order : one.size < other.size ? -1 : one.size > other.size;
}

bool nj_refuse_program(nj_span text, nj_span words, bool (*knows)(void *context, nj_span name), void *context, nj_error *error)
{
    nj_span first = {0};
    const unsigned char *at = words.at, *end = at + words.size;
    while (at < end) {
        const unsigned char *quote = *at == '\'' || *at == '"' ? memchr(at + 1, *at, (size_t)(end - at) - 1) : NULL;
        const unsigned char *from = quote == NULL ? at : quote, *space = memchr(from, ' ', (size_t)(end - from));
        nj_span word = {at, (size_t)((space == NULL ? end : space) - at)};
        if (is_name(word) && (first.at == NULL || compare(word, first) < 0) && !knows(context, word)) {
            first = word;
        }
        at = space == NULL ? end : space + 1;
    }
    nj_text whole = nj_quote(text), name = first.at == NULL ? (nj_text){NJ_PROGRAM_RULE} : nj_quote(first);
    nj_text got = nj_format(first.at == NULL ? "%.100s in %.90s" : "unknown name %.60s in %.110s", name.text, whole.text);
    return nj_differ(error, got.text, "expected an expression over the kernel's params");
}

/* An expression of the table: its text, and its words in postfix. */
typedef struct {
    nj_span text, words;
} expression;

/* Makes the program of an expression; false with `error` filled. */
static bool assemble(ground *it, const expression *of, size_t slots, nj_assembly *made, nj_error *error)
{
    if (nj_assemble(of->words, find_name, it, slots, made)) {
        return true;
    }
    return it->starved ? nj_no_memory(error) : nj_refuse_program(of->text, of->words, can_stand, it, error);
}

/* Notes the open axes of a program, and sets `point` to their first point. Returns their number of points, NJ_PROGRAMS_MAX + 1 at most. */
static uint64_t count_points(const nj_spec *spec, const nj_assembly *made, uint32_t *point, bool *open)
{
    const nj_table *table = spec->signatures.table;
    uint64_t points = 1;
    memset(point, 0, table->axis_count * sizeof *point);
    memset(open, 0, table->axis_count * sizeof *open);
    for (size_t i = 0; i < made->length; i++) {
        size_t slot = (size_t)made->code[i].operand;
        if (made->code[i].op == NJ_OP_LOAD && slot >= spec->argument_count && !open[slot - spec->argument_count]) {
            open[slot - spec->argument_count] = true;
            points *= table->axes[slot - spec->argument_count].count;
            points = points > NJ_PROGRAMS_MAX ? NJ_PROGRAMS_MAX + 1 : points;
        }
    }
    return points;
}

static void next_point(const nj_table *table, const bool *open, uint32_t *point)
{
    for (uint32_t i = 0; i < table->axis_count; i++) {
        if (open[i]) {
            point[i] = point[i] + 1 == table->axes[i].count ? 0 : point[i] + 1;
            if (point[i] != 0) {
                return;
            }
        }
    }
}

/* The state of the search for programs. */
typedef struct {
    nj_spec *spec;
    program_set open, found; /* programs with type axes open, and with their values filled in */
    uint32_t *point;
    bool *is_open;
    uint64_t grounded;
} search;

/* Adds the program of an expression at each point of its open axes. */
static bool add_points(search *it, ground *at, const expression *of, uint64_t points, nj_error *error)
{
    it->grounded += points;
    if (it->grounded > NJ_PROGRAMS_MAX) {
        return nj_break(error, "size", "more", "expected at most %d expressions over arguments that choose a variant", NJ_PROGRAMS_MAX);
    }
    at->point = it->point;
    bool added = true;
    for (uint64_t i = 0; added && i < points; i++) {
        nj_assembly made;
        added = assemble(at, of, it->spec->argument_count, &made, error) &&
                (!loads(it->spec, &made, false) || set_add(&it->found, &made, error) >= 0);
        next_point(it->spec->signatures.table, it->is_open, it->point);
    }
    at->point = NULL;
    return added;
}

/* Adds the programs of an expression with the values of a config. */
static bool add_expression(search *it, ground *at, const expression *of, nj_error *error)
{
    nj_assembly made;
    const nj_table *table = it->spec->signatures.table;
    if (!assemble(at, of, (size_t)it->spec->argument_count + table->axis_count, &made, error)) {
        return false;
    }
    if (!loads(it->spec, &made, false)) {
        return true;
    }
    int added = set_add(&it->open, &made, error);
    if (added <= 0) {
        return added == 0;
    }
    return add_points(it, at, of, count_points(it->spec, &made, it->point, it->is_open), error);
}

static bool find_programs(search *it, nj_error *error)
{
    const nj_table *table = it->spec->signatures.table;
    bool found = true;
    for (uint32_t i = 0; found && i < table->config_count; i++) {
        ground at = {.spec = it->spec, .config = &table->configs[i]};
        if (at.config->requires_program >= 0) {
            expression requires = {at.config->requires, table->programs[at.config->requires_program]};
            found = add_expression(it, &at, &requires, error);
        }
        for (uint32_t number = 0; found && number < table->derived_count; number++) {
            expression derived = {table->derived[number].expression, table->programs[table->grid_count + number]};
            found = add_expression(it, &at, &derived, error);
        }
    }
    return found;
}

/* Returns whether the kernel has a derived constexpr or a `requires`; most kernels have neither. */
static bool computes(const nj_table *table)
{
    bool any = table->derived_count > 0;
    for (uint32_t i = 0; !any && i < table->config_count; i++) {
        any = table->configs[i].requires_program >= 0;
    }
    return any;
}

bool nj_spec_find_expressions(nj_spec *spec, nj_error *error)
{
    const nj_table *table = spec->signatures.table;
    if (!computes(table)) {
        return true;
    }
    search it = {.spec = spec};
    it.point = calloc((size_t)table->axis_count + 1, sizeof *it.point);
    it.is_open = calloc((size_t)table->axis_count + 1, sizeof *it.is_open);
    bool ready = it.point != NULL && it.is_open != NULL;
    bool found = ready ? find_programs(&it, error) : nj_no_memory(error);
    if (found) {
        spec->programs = it.found.programs;
        spec->program_count = it.found.count;
        it.found.programs = NULL;
        it.found.count = 0;
    }
    set_clear(&it.open);
    set_clear(&it.found);
    free(it.point);
    free(it.is_open);
    return found;
}
