#include "table/expression_programs.h"

#include "expr/infix.h"
#include "table/table_reader.h"

#include <stdlib.h>

enum { GRID, DERIVED, KEY, REQUIRES, PARTS };

bool nj_next_expression(nj_expressions *it, nj_span *text)
{
    const nj_table *table = it->table;
    const uint32_t counts[PARTS] = {table->grid_count, table->derived_count, table->tuning.key_count, table->config_count};
    it->config = NJ_NO_CONFIG;
    for (; it->part < PARTS; it->part++, it->index = 0) {
        while (it->index < counts[it->part]) {
            uint32_t index = it->index++;
            switch (it->part) {
            case GRID: *text = table->grid[index]; return true;
            case DERIVED: *text = table->derived[index].expression; return true;
            case KEY: *text = table->tuning.key[index]; return true;
            default: it->config = index;
            }
            if (table->configs[index].requires.size > 0) {
                *text = table->configs[index].requires;
                return true;
            }
        }
    }
    return false;
}

size_t nj_chars(nj_span utf8)
{
    size_t count = 0;
    for (size_t i = 0; i < utf8.size; i++) {
        count += (utf8.at[i] & 0xc0) != 0x80;
    }
    return count;
}

size_t nj_expression_chars(const nj_table *table)
{
    nj_expressions it = {.table = table};
    nj_span text;
    size_t count = 0;
    while (nj_next_expression(&it, &text)) {
        count += nj_chars(text);
    }
    return count;
}

/* Returns the rest of a text from character `column` on. */
static nj_span behind(nj_span text, size_t column)
{
    size_t i = 0;
    for (size_t seen = 0; i < text.size; i++) {
        if ((text.at[i] & 0xc0) != 0x80 && seen++ == column) {
            break;
        }
    }
    return (nj_span){text.at + i, text.size - i};
}

/* Returns the part of an expression that a message quotes: the character, or the name of the function. */
static nj_span culprit(const nj_syntax_error *syntax, nj_span rest)
{
    size_t size = 0;
    if (strcmp(syntax->what, "unexpected") == 0) {
        for (size = rest.size > 0; size < rest.size && (rest.at[size] & 0xc0) == 0x80; size++) {
        }
    } else if (strcmp(syntax->what, "unknown function") == 0) {
        while (size < rest.size && rest.at[size] != '(' && rest.at[size] != ' ') {
            size++;
        }
    }
    return (nj_span){rest.at, size};
}

static bool refuse_expression(nj_span text, const nj_syntax_error *syntax, nj_error *error)
{
    nj_span shown = culprit(syntax, behind(text, syntax->column));
    nj_text quoted = shown.size == 0 ? nj_format("%s", "") : nj_quote(shown);
    return nj_break(error, "expression", "", "%s%s%.60s at column %zu of %.120s", syntax->what, shown.size == 0 ? "" : " ", quoted.text,
                    syntax->column, nj_quote(text).text);
}

/* Checks that a program is the postfix form of its expression. */
static bool check_program(nj_span text, nj_span program, char *words, nj_error *error)
{
    size_t length;
    nj_syntax_error syntax;
    if (!nj_postfix(text, words, &length, &syntax)) {
        return refuse_expression(text, &syntax, error);
    }
    nj_span right = {(const unsigned char *)words, length};
    return nj_span_equal(program, right) || nj_break(error, "program", nj_quote(program).text, "expected %.120s of %.120s",
                                                     nj_quote(right).text, nj_quote(text).text);
}

bool nj_check_programs(nj_table *table, nj_error *error)
{
    /* the reader still owns the table, so its configs may change */
    nj_config *configs = (nj_config *)table->configs;
    nj_span text;
    uint32_t count = 0;
    size_t longest = 0;
    for (nj_expressions it = {.table = table}; nj_next_expression(&it, &text); count++) {
        longest = text.size > longest ? text.size : longest;
    }
    if (count != table->program_count) {
        return nj_break(error, "size", nj_format("%u", (unsigned)table->program_count).text, "expected %u programs", (unsigned)count);
    }
    char *words = malloc(nj_postfix_room(longest));
    bool right = words != NULL || nj_no_memory(error);
    nj_expressions it = {.table = table};
    for (uint32_t number = 0; right && nj_next_expression(&it, &text); number++) {
        right = check_program(text, table->programs[number], words, error);
        if (it.config != NJ_NO_CONFIG) {
            configs[it.config].requires_program = (int32_t)number;
        }
    }
    free(words);
    return right;
}
