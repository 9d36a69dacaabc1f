#include "json/json.h"

#include "json/limits.h"
#include "json/text.h"

enum { DIGITS_QUICK = 19 };

typedef struct {
    const unsigned char *start, *at, *end;
    nj_error *error;
} nj_scan;

static size_t place_of(const nj_scan *it)
{
    return (size_t)(it->at - it->start);
}

/* Fills the error of a syntax error at the current byte. Returns false. */
static bool refuse(const nj_scan *it)
{
    nj_text got = it->at == it->end ? nj_format("its end") : nj_quote((nj_span){it->at, 1});
    return nj_break(it->error, "json", nj_format("%s at byte %zu", got.text, place_of(it)).text, "expected ASCII JSON without floats");
}

/* Fills the error of JSON that is valid but not canonical; `what` names the fault. Returns false. */
static bool refuse_spelling(const nj_scan *it, const char *what)
{
    return nj_break(it->error, "json-canonical", nj_format("%.120s at byte %zu", what, place_of(it)).text,
                    "expected canonical JSON (sorted unique keys, no spaces)");
}

/* Fills the error of an unexpected character; whitespace is only not canonical. Returns false. */
static bool refuse_character(const nj_scan *it)
{
    bool is_space = it->at < it->end && (*it->at == ' ' || *it->at == '\t' || *it->at == '\n' || *it->at == '\r');
    return is_space ? refuse_spelling(it, "a space") : refuse(it);
}

static bool pass(nj_scan *it, char expected)
{
    if (it->at == it->end || *it->at != (unsigned char)expected) {
        return false;
    }
    it->at++;
    return true;
}

static bool need(nj_scan *it, char expected)
{
    return pass(it, expected) || refuse_character(it);
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

/* Reads four hex digits. */
static bool hex4(nj_scan *it, uint32_t *value, bool *has_capitals)
{
    *value = 0;
    for (int i = 0; i < 4; i++, it->at++) {
        unsigned char c = it->at < it->end ? *it->at : 0, lower = c | 0x20;
        bool is_letter = lower >= 'a' && lower <= 'f';
        if (!is_digit(c) && !is_letter) {
            return refuse(it);
        }
        *has_capitals |= is_letter && c != lower;
        *value = *value << 4 | (uint32_t)(is_letter ? lower - 'a' + 10 : c - '0');
    }
    return true;
}

static bool check_unicode(nj_scan *it)
{
    uint32_t value, low = 0;
    bool capitals = false;
    if (!hex4(it, &value, &capitals)) {
        return false;
    }
    if (value >= 0xd800 && value < 0xdc00 && pass(it, '\\') && (!need(it, 'u') || !hex4(it, &low, &capitals))) {
        return false;
    }
    if (value >= 0xd800 && value < 0xe000 && (value >= 0xdc00 || low < 0xdc00 || low >= 0xe000)) {
        return nj_break(it->error, "json", nj_format("one alone before byte %zu", place_of(it)).text, "expected surrogates in pairs");
    }
    bool is_short = value == '\b' || value == '\f' || value == '\n' || value == '\r' || value == '\t';
    bool needs_none = value >= ' ' && value < 0x7f;
    return (!capitals && !is_short && !needs_none) || refuse_spelling(it, "an escape spelled otherwise");
}

static bool check_escape(nj_scan *it)
{
    if (it->at == it->end || *it->at == 0 || strchr("\"\\/bfnrtu", *it->at) == NULL) {
        return refuse(it);
    }
    unsigned char c = *it->at++;
    return c == 'u' ? check_unicode(it) : c != '/' || refuse_spelling(it, "an escape that needs none");
}

/* Skips characters that need no escape. */
static void pass_plain(nj_scan *it)
{
    const unsigned char *at = it->at, *end = it->end;
    while (at < end && *at >= ' ' && *at <= '~' && *at != '"' && *at != '\\') {
        at++;
    }
    it->at = at;
}

static bool check_text(nj_scan *it, nj_span *text)
{
    if (!need(it, '"')) {
        return false;
    }
    const unsigned char *start = it->at;
    for (pass_plain(it); it->at < it->end && *it->at != '"'; pass_plain(it)) {
        unsigned char c = *it->at;
        if (c < ' ' || c > 0x7e) {
            return c == 0x7f ? refuse_spelling(it, "a character without escape") : refuse(it);
        }
        it->at++;
        if (c == '\\' && !check_escape(it)) {
            return false;
        }
    }
    *text = (nj_span){start, (size_t)(it->at - start)};
    return need(it, '"');
}

static bool check_number(nj_scan *it)
{
    bool negative = pass(it, '-'), zero = pass(it, '0');
    const unsigned char *start = it->at;
    while (!zero && it->at < it->end && is_digit(*it->at)) {
        it->at++;
    }
    if (!zero && it->at == start) {
        return refuse(it);
    }
    if (it->at < it->end && (is_digit(*it->at) || *it->at == '.' || (*it->at | 0x20) == 'e')) {
        return refuse(it);
    }
    if (it->at - start > NJ_JSON_DIGITS_MAX) {
        return nj_break(it->error, "size", "more", "expected integers of at most %d digits", NJ_JSON_DIGITS_MAX);
    }
    return !(zero && negative) || refuse_spelling(it, "-0");
}

static bool check_word(nj_scan *it, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(it->end - it->at) < length || memcmp(it->at, word, length) != 0) {
        return refuse(it);
    }
    it->at += length;
    return true;
}

static bool check_value(nj_scan *it, int depth);

/* Prepends a key, escapes included, to an error's place. Returns false. */
static bool within(const nj_scan *it, nj_span key)
{
    nj_note_step(it->error, ".%.*s", (int)(key.size < 60 ? key.size : 60), (const char *)key.at);
    return false;
}

static bool check_key(nj_scan *it, nj_span last, nj_span *key)
{
    if (!check_text(it, key)) {
        return false;
    }
    if (last.at != NULL && !nj_text_ascends(last, *key)) {
        return refuse_spelling(it, nj_format("key %.60s behind %.60s", nj_quote(*key).text, nj_quote(last).text).text);
    }
    return need(it, ':');
}

static bool check_object(nj_scan *it, int depth)
{
    nj_span last = {0}, key;
    if (pass(it, '}')) {
        return true;
    }
    do {
        if (!check_key(it, last, &key)) {
            return false;
        }
        if (!check_value(it, depth)) {
            return within(it, key);
        }
        last = key;
    } while (pass(it, ','));
    return need(it, '}');
}

/* Skips a short positive integer in an array; false if the next value is anything else. A fast path, because most values of large
 * documents are such integers. */
static bool pass_number(nj_scan *it)
{
    const unsigned char *at = it->at, *end = it->end - at > DIGITS_QUICK ? at + DIGITS_QUICK : it->end;
    if (at == end || *at < '1' || *at > '9') {
        return false;
    }
    do {
        at++;
    } while (at < end && is_digit(*at));
    bool passed = at < end && (*at == ',' || *at == ']');
    it->at = passed ? at : it->at;
    return passed;
}

static bool check_array(nj_scan *it, int depth)
{
    size_t index = 0;
    if (pass(it, ']')) {
        return true;
    }
    do {
        if (!pass_number(it) && !check_value(it, depth)) {
            nj_note_step(it->error, "[%zu]", index);
            return false;
        }
        index++;
    } while (pass(it, ','));
    return need(it, ']');
}

static bool check_inside(nj_scan *it, int depth)
{
    if (depth == NJ_JSON_DEPTH_MAX) {
        return nj_break(it->error, "json-depth", "more", "expected JSON that nests at most %d deep", NJ_JSON_DEPTH_MAX);
    }
    return *it->at++ == '{' ? check_object(it, depth + 1) : check_array(it, depth + 1);
}

static bool check_value(nj_scan *it, int depth)
{
    nj_span text;
    switch (it->at < it->end ? *it->at : 0) {
    case '{':
    case '[': return check_inside(it, depth);
    case '"': return check_text(it, &text);
    case 't': return check_word(it, "true");
    case 'f': return check_word(it, "false");
    case 'n': return check_word(it, "null");
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return check_number(it);
    default: return refuse_character(it);
    }
}

/* Checks the limits on the number of bytes and commas. */
static bool check_size(nj_span raw, nj_error *error)
{
    size_t commas = 0;
    /* most documents have fewer bytes than the limit on commas, so their commas need no count */
    if (raw.size <= NJ_JSON_COMMAS_MAX) {
        return true;
    }
    for (size_t i = 0; i < raw.size; i++) {
        commas += raw.at[i] == ',';
    }
    return (raw.size <= NJ_JSON_BYTES_MAX && commas <= NJ_JSON_COMMAS_MAX) ||
           nj_break(error, "size", nj_format("%zu bytes, %zu commas", raw.size, commas).text,
                    "expected JSON of at most %d bytes and %d commas", NJ_JSON_BYTES_MAX, NJ_JSON_COMMAS_MAX);
}

bool nj_check_json(nj_span raw, nj_error *error)
{
    nj_scan it = {raw.at, raw.at, raw.at + raw.size, error};
    if (!check_size(raw, error)) {
        return false;
    }
    if (!check_value(&it, 0)) {
        nj_note_step(error, "$");
        return false;
    }
    return it.at == it.end || refuse_character(&it);
}
