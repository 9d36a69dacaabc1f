#include "expr/infix.h"

#include "expr/operation_names.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    /* an operation in parentheses takes two steps down and adds one level to the tree */
    DEPTH_MAX = 2 * NJ_EXPRESSION_HEIGHT_MAX,
    INT_CHARS_MAX = 20,
    /* the most characters that one character of an expression becomes: "-" becomes "neg() ", a comma "next_pow2() " */
    GROWTH = 12,
};

typedef enum { END, INT, NAME, STRING, SYMBOL } kind;

/* A part of an expression that is parsed and written in postfix. */
typedef struct {
    int height;
    int logic;        /* NJ_BINDS_OR or NJ_BINDS_AND if the part joins operands with it, else 0 */
    size_t first_end; /* if so: where the words of the first operand end */
} part;

typedef struct {
    const unsigned char *at, *end;
    kind kind;
    nj_span token;
    int depth;
    char *words;
    size_t length;
    nj_syntax_error *error;
    const unsigned char *failed; /* the character at which parsing failed */
} parser;

static bool fail_at(parser *it, const unsigned char *at, const char *what)
{
    it->failed = at;
    snprintf(it->error->what, sizeof it->error->what, "%s", what);
    return false;
}

/* Reports the current token as an error. */
static bool fail(parser *it, const char *what)
{
    return fail_at(it, it->token.at, what);
}

static bool is_one_of(nj_span token, const char *const *texts)
{
    for (; *texts != NULL; texts++) {
        if (nj_span_is(token, *texts)) {
            return true;
        }
    }
    return false;
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(unsigned char c)
{
    return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

static bool begins_name(unsigned char c)
{
    return c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

/* Returns the end of the int that starts at `at`; NULL if none does. */
static const unsigned char *int_end(const unsigned char *at, const unsigned char *end)
{
    const unsigned char *stop = at + 1;
    if (*at == '0' && end - at > 2 && (at[1] | 0x20) == 'x' && is_hex(at[2])) {
        for (stop = at + 3; stop < end && is_hex(*stop); stop++) {
        }
    } else if (*at != '0') {
        for (; stop < end && is_digit(*stop); stop++) {
        }
    }
    bool goes_on = stop < end && (is_digit(*stop) || begins_name(*stop) || *stop == '.');
    return goes_on ? NULL : stop;
}

static const unsigned char *name_end(const unsigned char *at, const unsigned char *end)
{
    while (at < end && (begins_name(*at) || is_digit(*at))) {
        at++;
    }
    return at;
}

/* Returns the end of the string that starts at `at`; NULL if its closing quote is missing. */
static const unsigned char *string_end(const unsigned char *at, const unsigned char *end)
{
    unsigned char quote = *at++;
    while (at < end && *at != quote && *at >= 0x20) {
        at++;
    }
    return at < end && *at == quote ? at + 1 : NULL;
}

static const unsigned char *symbol_end(const unsigned char *at, const unsigned char *end)
{
    static const char *const twos[] = {"//", "==", "!=", "<=", ">=", NULL};
    if (end - at > 1 && is_one_of((nj_span){at, 2}, twos)) {
        return at + 2;
    }
    return memchr("-+*%<>(),", *at, 9) != NULL ? at + 1 : NULL;
}

/* Reports characters that begin no token. Returns false. */
static bool fail_to_read(parser *it, const unsigned char *at)
{
    static const char *const instead[][2] = {
        {"True", "true"}, {"False", "false"}, {"None", "none"}, {"&&", "and"}, {"||", "or"}, {"!", "not"}, {"/", "//"}, {"=", "=="},
    };
    for (size_t i = 0; i < sizeof instead / sizeof *instead; i++) {
        size_t size = strlen(instead[i][0]);
        if ((size_t)(it->end - at) >= size && memcmp(at, instead[i][0], size) == 0) {
            it->failed = at;
            snprintf(it->error->what, sizeof it->error->what, "'%s' is spelled '%s'", instead[i][0], instead[i][1]);
            return false;
        }
    }
    bool quoted = *at == '\'' || *at == '"';
    return fail_at(it, at, quoted ? "expected the string to end" : is_digit(*at) ? "expected an integer" : "unexpected");
}

/* Reads the next token, which is END after the last; false if the characters form none. */
static bool advance(parser *it)
{
    static const char *const words[] = {"and", "or", "not", "true", "false", "none", NULL};
    static const char *const wrong[] = {"True", "False", "None", NULL};
    while (it->at < it->end && (*it->at == ' ' || (*it->at >= '\t' && *it->at <= '\r'))) {
        it->at++;
    }
    const unsigned char *start = it->at, *stop = start;
    kind kind = END;
    if (start == it->end) {
    } else if (is_digit(*start)) {
        kind = INT;
        stop = int_end(start, it->end);
    } else if (begins_name(*start)) {
        kind = NAME;
        stop = name_end(start, it->end);
    } else if (*start == '\'' || *start == '"') {
        kind = STRING;
        stop = string_end(start, it->end);
    } else {
        kind = SYMBOL;
        stop = symbol_end(start, it->end);
    }
    nj_span token = {start, stop == NULL ? 0 : (size_t)(stop - start)};
    if (stop == NULL || (kind == NAME && is_one_of(token, wrong))) {
        return fail_to_read(it, start);
    }
    it->kind = kind == NAME && is_one_of(token, words) ? SYMBOL : kind;
    it->token = token;
    it->at = stop;
    return true;
}

static bool is_symbol(const parser *it, const char *text)
{
    return it->kind == SYMBOL && nj_span_is(it->token, text);
}

/* Returns how tightly the current operator binds its two operands; 0 if the token is no operator. */
static int binding_of(const parser *it)
{
    const nj_operation *known = it->kind == SYMBOL ? nj_operation_of(it->token) : NULL;
    return known == NULL ? 0 : known->binding;
}

static void put(parser *it, const char *text, size_t size)
{
    if (it->length > 0) {
        it->words[it->length++] = ' ';
    }
    memcpy(it->words + it->length, text, size);
    it->length += size;
}

static void put_span(parser *it, nj_span word)
{
    put(it, (const char *)word.at, word.size);
}

/* Writes a string in single quotes, unless it contains one. */
static void put_string(parser *it, nj_span quoted)
{
    const char quote = memchr(quoted.at + 1, '\'', quoted.size - 2) == NULL ? '\'' : '"';
    put_span(it, quoted);
    it->words[it->length - quoted.size] = it->words[it->length - 1] = quote;
}

static void put_operation(parser *it, nj_op op)
{
    const char *word = nj_word_of(op);
    put(it, word, strlen(word));
}

/* Sets the height of a part to one level above that of its operands; false if that is too high. */
static bool grow(parser *it, part *made, int height)
{
    made->logic = 0;
    made->height = height + 1;
    return made->height <= NJ_EXPRESSION_HEIGHT_MAX || fail(it, "more than " NJ_SPELLED(NJ_EXPRESSION_HEIGHT_MAX) " levels of operations");
}

/* Reads past a required symbol; fails with `what` if the token is another. */
static bool expect(parser *it, const char *symbol, const char *what)
{
    return is_symbol(it, symbol) ? advance(it) : fail(it, what);
}

static bool read_expression(parser *it, int lowest, part *made);

static bool read_int(parser *it, bool negative, part *made)
{
    uint64_t value = 0;
    const unsigned char *at = it->token.at, *end = at + it->token.size;
    unsigned base = it->token.size > 2 && (at[1] | 0x20) == 'x' ? 16 : 10;
    char digits[INT_CHARS_MAX + 2];
    static const char *const too_large = "the integer does not fit in 64 bits";
    if (it->token.size > INT_CHARS_MAX) {
        return fail(it, too_large);
    }
    for (at += base == 16 ? 2 : 0; at < end; at++) {
        unsigned digit = is_digit(*at) ? *at - (unsigned)'0' : (*at | 0x20u) - 'a' + 10;
        if (value > (UINT64_MAX - digit) / base) {
            return fail(it, too_large);
        }
        value = value * base + digit;
    }
    if (value > (uint64_t)INT64_MAX + negative) {
        return fail(it, too_large);
    }
    size_t start = sizeof digits;
    bool sign = negative && value != 0;
    do {
        digits[--start] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    if (sign) {
        digits[--start] = '-';
    }
    put(it, digits + start, sizeof digits - start);
    *made = (part){.height = 1};
    return advance(it);
}

/* Reports a wrong number of arguments of a function. Returns false. */
static bool fail_to_call(parser *it, nj_span name, const nj_operation *function, int got)
{
    it->failed = name.at;
    snprintf(it->error->what, sizeof it->error->what, "%.*s takes %s%zu arguments, got %d", (int)name.size, (const char *)name.at,
             function->is_open ? "at least " : "", nj_operands(function->op), got);
    return false;
}

static bool read_call(parser *it, nj_span name, part *made)
{
    const nj_operation *function = nj_function_of(name);
    size_t operands = 0, least = function == NULL ? 0 : nj_operands(function->op);
    int height = 0;
    if (!advance(it)) {
        return false;
    }
    if (function == NULL) {
        return fail_at(it, name.at, "unknown function");
    }
    do {
        if ((operands > 0 && !advance(it)) || !read_expression(it, NJ_BINDS_OR, made)) {
            return false;
        }
        height = made->height > height ? made->height : height;
        if (++operands > 1) {
            put_operation(it, function->op);
        }
    } while (is_symbol(it, ","));
    if (least == 1) {
        put_operation(it, function->op);
    }
    if (!expect(it, ")", "expected ')'")) {
        return false;
    }
    if (operands < least || (operands > least && !function->is_open)) {
        return fail_to_call(it, name, function, (int)operands);
    }
    return grow(it, made, height);
}

static bool read_atom(parser *it, part *made)
{
    nj_span token = it->token;
    *made = (part){.height = 1};
    if (it->kind == INT) {
        return read_int(it, false, made);
    }
    if (is_symbol(it, "(")) {
        return advance(it) && read_expression(it, NJ_BINDS_OR, made) && expect(it, ")", "expected ')'");
    }
    if (it->kind == STRING) {
        put_string(it, token);
        return advance(it);
    }
    bool is_constant = is_symbol(it, "true") || is_symbol(it, "false") || is_symbol(it, "none");
    if (it->kind != NAME && !is_constant) {
        return fail(it, "expected a value");
    }
    if (!advance(it)) {
        return false;
    }
    if (!is_constant && is_symbol(it, "(")) {
        return read_call(it, token, made);
    }
    put_span(it, token);
    return true;
}

static bool read_prefix(parser *it, int lowest, part *made)
{
    if (is_symbol(it, "not")) {
        if (lowest > NJ_BINDS_NOT) {
            return fail(it, "expected a value; put parentheses around 'not'");
        }
        if (!advance(it) || !read_expression(it, NJ_BINDS_NOT, made)) {
            return false;
        }
        put_operation(it, NJ_OP_NOT);
        return grow(it, made, made->height);
    }
    if (is_symbol(it, "-")) {
        if (!advance(it)) {
            return false;
        }
        if (it->kind == INT) {
            return read_int(it, true, made);
        }
        if (!read_expression(it, NJ_BINDS_SIGN, made)) {
            return false;
        }
        put_operation(it, NJ_OP_NEG);
        return grow(it, made, made->height);
    }
    return read_atom(it, made);
}

/* Inserts a word after the words that end at `at`. */
static void insert(parser *it, size_t at, nj_span word)
{
    memmove(it->words + at + 1 + word.size, it->words + at, it->length - at);
    it->words[at] = ' ';
    memcpy(it->words + at + 1, word.at, word.size);
    it->length += 1 + word.size;
}

/* Reads the operands that `and` or `or` joins to a first one. Operands that the same word joins in parentheses count as operands of the
 * whole, as if the parentheses were absent. */
static bool read_logic(parser *it, int binding, part *made)
{
    nj_span word = binding == NJ_BINDS_OR ? (nj_span){(const unsigned char *)"or", 2} : (nj_span){(const unsigned char *)"and", 3};
    bool flat = made->logic == binding;
    int height = made->height - flat;
    size_t first_end = flat ? made->first_end : it->length;
    while (binding_of(it) == binding) {
        part operand;
        if (!advance(it) || !read_expression(it, binding + 1, &operand)) {
            return false;
        }
        flat = operand.logic == binding;
        height = operand.height - flat > height ? operand.height - flat : height;
        if (flat) {
            insert(it, operand.first_end, word);
        } else {
            put_span(it, word);
        }
    }
    bool fits = grow(it, made, height);
    made->logic = binding;
    made->first_end = first_end;
    return fits;
}

static bool read_binary(parser *it, int binding, part *made)
{
    nj_span word = it->token;
    part right;
    if (!advance(it) || !read_expression(it, binding + 1, &right)) {
        return false;
    }
    put_span(it, word);
    if (!grow(it, made, made->height > right.height ? made->height : right.height)) {
        return false;
    }
    bool chained = binding == NJ_BINDS_COMPARISON && binding_of(it) == NJ_BINDS_COMPARISON;
    return !chained || fail(it, "comparisons do not chain; join two of them with 'and'");
}

static bool read_expression(parser *it, int lowest, part *made)
{
    if (++it->depth > DEPTH_MAX) {
        return fail(it, "more than " NJ_SPELLED(NJ_EXPRESSION_HEIGHT_MAX) " levels of nesting");
    }
    if (!read_prefix(it, lowest, made)) {
        return false;
    }
    for (int binding; (binding = binding_of(it)) >= lowest && binding > 0;) {
        if (!(binding <= NJ_BINDS_AND ? read_logic(it, binding, made) : read_binary(it, binding, made))) {
            return false;
        }
    }
    it->depth--;
    return true;
}

size_t nj_postfix_room(size_t size)
{
    return GROWTH * (size + 1);
}

static size_t characters(const unsigned char *at, const unsigned char *end)
{
    size_t count = 0;
    for (; at < end; at++) {
        count += (*at & 0xC0) != 0x80;
    }
    return count;
}

bool nj_postfix(nj_span text, char *words, size_t *length, nj_syntax_error *error)
{
    parser it = {.at = text.at, .end = text.at + text.size, .words = words, .error = error};
    part made;
    if (characters(text.at, it.end) > NJ_EXPRESSION_LENGTH_MAX) {
        error->column = NJ_EXPRESSION_LENGTH_MAX;
        snprintf(error->what, sizeof error->what, "more than %d characters", NJ_EXPRESSION_LENGTH_MAX);
        return false;
    }
    bool whole = advance(&it) && read_expression(&it, NJ_BINDS_OR, &made) && (it.kind == END || fail(&it, "expected an operator or the end"));
    error->column = whole ? 0 : characters(text.at, it.failed);
    *length = it.length;
    return whole;
}
