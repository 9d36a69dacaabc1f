/* Explains why each variant of a kernel does or does not serve a call. */
#include "api/kernel_select.h"
#include "select/hint.h"
#include "select/serving_rules.h"

#include <stdio.h>
#include <stdlib.h>

enum { WORD_CHARS = 256 };

/* The state of writing the reason of one variant. */
typedef struct {
    nj_call_match *it;
    const nj_bound_call *call;
    size_t row;
    char name[WORD_CHARS], expected[WORD_CHARS], got[WORD_CHARS];
    nj_reason reason;
} reason_writer;

static void write_span(char word[WORD_CHARS], nj_span text)
{
    snprintf(word, WORD_CHARS, "%.*s", (int)(text.size < WORD_CHARS ? text.size : WORD_CHARS - 1), (const char *)text.at);
}

static void write_constant(char word[WORD_CHARS], const nj_constant *value)
{
    size_t at;
    switch (value == NULL ? NJ_CONSTANT_NONE : value->kind) {
    case NJ_CONSTANT_BOOL: write_span(word, value->truth ? (nj_span){(const unsigned char *)"True", 4} : (nj_span){(const unsigned char *)"False", 5}); break;
    case NJ_CONSTANT_INT: snprintf(word, WORD_CHARS, "%s%llu", value->negative ? "-" : "", (unsigned long long)value->magnitude); break;
    case NJ_CONSTANT_FLOAT: snprintf(word, WORD_CHARS, "%.17g", value->number); break;
    case NJ_CONSTANT_TEXT: snprintf(word, WORD_CHARS, "%s", nj_quote(value->text).text); break;
    case NJ_CONSTANT_DTYPE:
    case NJ_CONSTANT_FUNCTION: write_span(word, value->text); break;
    case NJ_CONSTANT_TUPLE:
        at = (size_t)snprintf(word, WORD_CHARS, "(");
        for (uint32_t i = 0; i < value->count && at < WORD_CHARS; i++) {
            char item[WORD_CHARS];
            write_constant(item, &value->items[i]);
            at += (size_t)snprintf(word + at, WORD_CHARS - at, "%s%s", i == 0 ? "" : ", ", item);
        }
        if (at < WORD_CHARS) {
            snprintf(word + at, WORD_CHARS - at, ")");
        }
        break;
    default: snprintf(word, WORD_CHARS, "None"); break;
    }
}

static void write_value(char word[WORD_CHARS], const nj_value *value, const nj_bound_call *call)
{
    switch (value->tag) {
    case NJ_TAG_NONE: snprintf(word, WORD_CHARS, "None"); break;
    case NJ_TAG_BOOL: snprintf(word, WORD_CHARS, value->bits != 0 ? "True" : "False"); break;
    case NJ_TAG_INT: snprintf(word, WORD_CHARS, "%lld", (long long)value->bits); break;
    case NJ_TAG_UINT: snprintf(word, WORD_CHARS, "%llu", (unsigned long long)value->bits); break;
    case NJ_TAG_POINTER: snprintf(word, WORD_CHARS, "*%s at %#llx", nj_dtype_name(value->dtype), (unsigned long long)value->bits); break;
    case NJ_TAG_TUPLE: snprintf(word, WORD_CHARS, "a tuple of %u", (unsigned)nj_tuple_members(value)); break;
    case NJ_TAG_DESCRIPTOR: {
        const nj_descriptor *descriptor = &call->descriptors[value->bits];
        snprintf(word, WORD_CHARS, "a descriptor of %s, rank %d", nj_dtype_name(descriptor->base.dtype), descriptor->rank);
        break;
    }
    default: snprintf(word, WORD_CHARS, nj_is_id(value) || value->tag != NJ_TAG_OPAQUE ? "a constant" : "%.17g", nj_as_double(value->bits)); break;
    }
}

/* Writes the first argument whose type differs from the row's signature. */
static void write_type(reason_writer *w)
{
    const nj_signatures *signatures = w->it->match.signatures;
    const nj_table *table = signatures->table;
    uint32_t signature = table->cases[nj_table_at(table, NJ_COLUMN_CASE, w->row)].signature;
    for (uint32_t i = 0; i < table->runtime_count; i++) {
        uint8_t number = signatures->numbers[(size_t)signature * table->runtime_count + i];
        if ((w->it->match.takers[i] >> number & 1) == 0) {
            uint32_t place = signatures->params[i].place;
            write_span(w->name, table->params[place].name);
            write_span(w->expected, table->signatures[signature][i]);
            write_value(w->got, &w->call->values[place], w->call);
            return;
        }
    }
}

static const nj_constant *given_of(const reason_writer *w, nj_span name)
{
    const nj_table *table = &w->it->kernel->table;
    for (uint32_t i = 0; i < table->param_count; i++) {
        if (nj_span_equal(table->params[i].name, name)) {
            const nj_constant *given = w->it->constants.given[i];
            return given != NULL ? given : table->params[i].has_default ? &table->params[i].fallback : NULL;
        }
    }
    return NULL;
}

static void write_axis(reason_writer *w)
{
    const nj_table *table = &w->it->kernel->table;
    uint32_t number = nj_table_at(table, NJ_COLUMN_CASE, w->row);
    for (uint32_t i = 0; i < table->axis_count; i++) {
        if (!nj_match_on_axis(&w->it->match, number, i)) {
            write_span(w->name, table->axes[i].name);
            write_constant(w->expected, &table->axes[i].values[table->cases[number].places[i]]);
            write_constant(w->got, given_of(w, table->axes[i].name));
            return;
        }
    }
}

static const nj_constant *setting_named(const nj_config *config, nj_span name)
{
    const nj_constant *found = NULL;
    for (uint32_t i = 0; i < config->constexpr_count; i++) {
        found = nj_span_equal(config->constexprs[i].name, name) ? &config->constexprs[i].value : found;
    }
    for (uint32_t i = 0; i < config->option_count; i++) {
        found = nj_span_equal(config->options[i].name, name) ? &config->options[i].value : found;
    }
    return found;
}

static void write_setting(reason_writer *w)
{
    const nj_kernel *kernel = w->it->kernel;
    uint32_t config = nj_table_at(&kernel->table, NJ_COLUMN_CONFIG, w->row);
    for (size_t place = 0; place < kernel->param_count + kernel->option_count; place++) {
        if (nj_match_asks(&w->it->match, place) && !nj_match_sets(&w->it->match, config, place)) {
            nj_span name = {(const unsigned char *)kernel->names[place], strlen(kernel->names[place])};
            write_span(w->name, name);
            write_constant(w->expected, setting_named(&kernel->table.configs[config], name));
            write_constant(w->got, w->it->constants.given[place]);
            return;
        }
    }
}

static void write_derived(reason_writer *w)
{
    const nj_table *table = &w->it->kernel->table;
    const nj_constant *built = table->derived_values[nj_table_at(table, NJ_COLUMN_DERIVED, w->row)];
    const nj_value *results = nj_match_derive(&w->it->match, nj_table_at(table, NJ_COLUMN_CASE, w->row), nj_table_at(table, NJ_COLUMN_CONFIG, w->row));
    for (uint32_t i = 0; i < table->derived_count; i++) {
        if (!nj_match_is_result(&w->it->match, &results[i], &built[i])) {
            write_span(w->name, table->derived[i].name);
            write_constant(w->expected, &built[i]);
            write_value(w->got, &results[i], w->call);
            return;
        }
    }
}

static void write_hint(reason_writer *w)
{
    const nj_table *table = &w->it->kernel->table;
    const nj_hint_set *set = &table->hint_sets[nj_table_at(table, NJ_COLUMN_HINTS, w->row)];
    for (uint32_t i = 0; i < set->count; i++) {
        if (!nj_hint_holds(w->it->match.signatures, &w->it->coerced.arguments, &set->hints[i])) {
            write_span(w->name, set->hints[i].leaf);
            snprintf(w->expected, WORD_CHARS, set->hints[i].value == 1 ? "1" : "a multiple of 16");
            const nj_value *got = nj_argument_at(w->it->match.signatures, &w->it->coerced.arguments, set->hints[i].leaf);
            if (got != NULL) {
                write_value(w->got, got, w->call);
            }
            return;
        }
    }
}

static void write_reason(reason_writer *w, nj_rule stage)
{
    const nj_table *table = &w->it->kernel->table;
    switch (stage) {
    case NJ_RULE_TYPES: w->reason.code = NJ_REASON_TYPE; write_type(w); break;
    case NJ_RULE_MATRIX: w->reason.code = NJ_REASON_CONSTEXPR; write_axis(w); break;
    case NJ_RULE_SETTINGS: w->reason.code = NJ_REASON_CONSTEXPR; write_setting(w); break;
    case NJ_RULE_REQUIRES:
        w->reason.code = NJ_REASON_REQUIRES;
        write_span(w->expected, table->configs[w->reason.config].requires);
        break;
    case NJ_RULE_DERIVED: w->reason.code = NJ_REASON_DERIVED; write_derived(w); break;
    case NJ_RULE_HINTS: w->reason.code = NJ_REASON_HINT; write_hint(w); break;
    default: w->reason.code = NJ_REASON_SERVES; break;
    }
}

static void tell_all(nj_call_match *it, const nj_bound_call *call, size_t chosen, nj_reason_visitor visit, void *user)
{
    const nj_table *table = &it->kernel->table;
    int stop = 0;
    for (size_t row = 0; stop == 0 && row < table->rows; row++) {
        reason_writer w = {.it = it, .call = call, .row = row};
        w.reason = (nj_reason){.size = sizeof w.reason, .variant = row, .config = nj_table_at(table, NJ_COLUMN_CONFIG, row)};
        if (row == chosen) {
            w.reason.code = NJ_REASON_CHOSEN;
        } else {
            write_reason(&w, nj_first_broken_rule(&it->match, row));
        }
        w.reason.name = w.name[0] == 0 ? NULL : w.name;
        w.reason.expected = w.expected;
        w.reason.got = w.got;
        stop = visit(user, &w.reason);
    }
}

static bool explain(nj_kernel *kernel, const nj_kernel_device *on, nj_bound_call *call, nj_reason_visitor visit, void *user, nj_error *error)
{
    nj_call_match it;
    size_t chosen;
    nj_arguments arguments = nj_call_arguments(call);
    nj_spec_coerce(&on->spec, call->values, &arguments);
    bool explained = nj_call_match_open(&it, kernel, on, call, error) || nj_within_argument(kernel, error);
    if (explained) {
        nj_verdict verdict = nj_select_of(&on->spec, &it.match, &chosen);
        explained = verdict != NJ_NO_MEMORY || nj_no_memory(error);
        if (explained) {
            tell_all(&it, call, verdict == NJ_SERVED ? chosen : SIZE_MAX, visit, user);
            explained = !it.match.starved || nj_no_memory(error);
        }
    }
    nj_call_match_close(&it);
    return explained;
}

nj_code nj_kernel_explain(nj_kernel *kernel, const nj_call *call, int device, nj_reason_visitor visit, void *user, nj_error *error)
{
    nj_error own;
    nj_bound_call bound;
    error = error == NULL ? &own : error;
    nj_kernel_device *on = nj_call_begin(kernel, call, &device, &bound, error);
    return on != NULL && explain(kernel, on, &bound, visit, user, error) ? NJ_OK : error->code;
}
