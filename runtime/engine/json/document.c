#include "json/document.h"

#include "json/json.h"
#include "json/limits.h"
#include "json/text.h"

#include <stdlib.h>

enum { DIGEST_CHARS = 64, DIGITS_QUICK = 18 /* an integer of 18 digits fits in 64 bits */ };

static const char *kind_of(unsigned char c)
{
    switch (c) {
    case '{': return "an object";
    case '[': return "an array";
    case '"': return "a string";
    case 'n': return "null";
    case 't': return "true";
    case 'f': return "false";
    default: return "an integer";
    }
}

static unsigned char here(const nj_document *it)
{
    return it->at < it->end ? *it->at : 0;
}

static bool pass(nj_document *it, unsigned char expected)
{
    bool stands = here(it) == expected;
    it->at += stands;
    return stands;
}

/* Takes a string with its escapes, without the quotes. */
static nj_span take_spelled(nj_document *it)
{
    const unsigned char *start = it->at + 1, *at = start;
    if (it->decoded == NULL) {
        /* the document has no escapes, so the next quote ends the string */
        at = memchr(start, '"', (size_t)(it->end - start));
    } else {
        while (*at != '"') {
            at += *at == '\\' ? 2 : 1;
        }
    }
    it->at = at + 1;
    return (nj_span){start, (size_t)(at - start)};
}

/* Skips one value. */
static void skip(nj_document *it)
{
    size_t depth = 0;
    while (it->at < it->end) {
        unsigned char c = *it->at;
        if (depth == 0 && (c == ',' || c == ']' || c == '}')) {
            return;
        }
        if (c == '"') {
            take_spelled(it);
            continue;
        }
        depth += c == '[' || c == '{';
        depth -= c == ']' || c == '}';
        it->at++;
    }
}

bool nj_document_take(nj_document *it, nj_span raw, nj_taker take, void *into, nj_error *error)
{
    *it = (nj_document){raw.at, raw.at + raw.size, error, NULL, 0};
    if (!nj_check_json(raw, error)) {
        return false;
    }
    if (memchr(raw.at, '\\', raw.size) != NULL && (it->decoded = malloc(raw.size)) == NULL) {
        return nj_no_memory(error);
    }
    if (!take(it, into)) {
        nj_note_step(error, "$");
        return false;
    }
    return true;
}

void nj_document_close(nj_document *it)
{
    free(it->decoded);
    it->decoded = NULL;
}

static nj_text add_word(nj_text words, const char *kind, nj_span name)
{
    return nj_format("%.120s%s%s %.60s", words.text, words.text[0] == 0 ? "" : "; ", kind, nj_quote(name).text);
}

/* Fills the error of an object with unknown or missing fields; it names them. Returns false. */
static bool refuse_fields(nj_document *it, const unsigned char *start, const nj_field *fields, size_t count)
{
    nj_text got = {""}, names = {""};
    uint32_t seen = 0;
    it->at = start;
    for (bool more = here(it) != '}'; more; more = pass(it, ',')) {
        nj_span key = take_spelled(it);
        size_t i = 0;
        while (i < count && !nj_span_is(key, fields[i].name)) {
            i++;
        }
        if (i == count) {
            got = add_word(got, "unknown field", key);
        } else {
            seen |= (uint32_t)1 << i;
        }
        it->at++;
        skip(it);
    }
    for (size_t i = 0; i < count; i++) {
        names = nj_format("%.170s%s%s", names.text, i == 0 ? "" : ", ", fields[i].name);
        if ((seen >> i & 1) == 0) {
            got = add_word(got, "no field", (nj_span){(const unsigned char *)fields[i].name, strlen(fields[i].name)});
        }
    }
    return nj_break(it->error, "fields", got.text, "expected the fields %s", names.text);
}

bool nj_take_object(nj_document *it, const nj_field *fields, size_t count, void *into)
{
    if (here(it) != '{') {
        return nj_break(it->error, "type", kind_of(here(it)), "expected an object");
    }
    const unsigned char *start = ++it->at;
    for (size_t i = 0; i < count; i++) {
        /* the syntax is validated, so a comma or the end of the object follows a value */
        if ((i > 0 && !pass(it, ',')) || here(it) != '"' || !nj_span_is(take_spelled(it), fields[i].name)) {
            return refuse_fields(it, start, fields, count);
        }
        it->at++;
        if (!fields[i].take(it, into)) {
            nj_note_step(it->error, ".%s", fields[i].name);
            return false;
        }
    }
    return pass(it, '}') || refuse_fields(it, start, fields, count);
}

/* Returns the number of items of an array whose first `count` items are already read. */
static size_t count_items(nj_document *it, size_t count)
{
    do {
        skip(it);
        count++;
    } while (pass(it, ','));
    return count;
}

bool nj_take_array(nj_document *it, size_t most, nj_taker take, void *into)
{
    size_t count = 0;
    if (!pass(it, '[')) {
        return nj_break(it->error, "type", kind_of(here(it)), "expected an array");
    }
    if (pass(it, ']')) {
        return true;
    }
    do {
        if (count == most) {
            return nj_break(it->error, "size", nj_format("%zu", count_items(it, count)).text, "expected at most %zu items", most);
        }
        if (!take(it, into)) {
            nj_note_step(it->error, "[%zu]", count);
            return false;
        }
        count++;
    } while (pass(it, ','));
    return pass(it, ']');
}

bool nj_take_integer(nj_document *it, nj_integer *number)
{
    const unsigned char *start = it->at;
    *number = (nj_integer){.negative = pass(it, '-'), .fits = true};
    const unsigned char *digits = it->at;
    for (; here(it) >= '0' && here(it) <= '9'; it->at++) {
        unsigned digit = here(it) - '0';
        number->fits = number->fits && number->magnitude <= (UINT64_MAX - digit) / 10;
        number->magnitude = number->fits ? 10 * number->magnitude + digit : UINT64_MAX;
    }
    number->spelled = (nj_span){start, (size_t)(it->at - start)};
    return it->at > digits || nj_break(it->error, "type", kind_of(here(it)), "expected an integer");
}

nj_text nj_integer_text(const nj_integer *number)
{
    int length = number->spelled.size < 40 ? (int)number->spelled.size : 40;
    return nj_format("%.*s", length, (const char *)number->spelled.at);
}

bool nj_take_count(nj_document *it, uint64_t least, uint64_t most, uint64_t *number)
{
    const unsigned char *start = it->at, *at = start, *end = it->end;
    uint64_t value = 0;
    /* fast path, because tables consist mostly of short numbers */
    while (at < end && *at >= '0' && *at <= '9' && at - start < DIGITS_QUICK) {
        value = 10 * value + (*at++ - '0');
    }
    if (at > start && (at == end || *at < '0' || *at > '9') && value >= least && value <= most) {
        *number = value;
        it->at = at;
        return true;
    }
    nj_integer taken;
    if (!nj_take_integer(it, &taken)) {
        return false;
    }
    *number = taken.magnitude;
    bool fits = taken.fits && !taken.negative && taken.magnitude >= least && taken.magnitude <= most;
    return fits || nj_break(it->error, "size", nj_integer_text(&taken).text, "expected an integer from %llu to %llu",
                            (unsigned long long)least, (unsigned long long)most);
}

bool nj_take_flag(nj_document *it, bool *flag)
{
    *flag = here(it) == 't';
    if (!*flag && here(it) != 'f') {
        return nj_break(it->error, "type", kind_of(here(it)), "expected true or false");
    }
    it->at += *flag ? strlen("true") : strlen("false");
    return true;
}

bool nj_take_null(nj_document *it)
{
    bool is_null = here(it) == 'n';
    it->at += is_null ? strlen("null") : 0;
    return is_null;
}

nj_span nj_take_raw(nj_document *it)
{
    const unsigned char *start = it->at;
    skip(it);
    return (nj_span){start, (size_t)(it->at - start)};
}

nj_span nj_peek_key(const nj_document *it)
{
    nj_document ahead = *it;
    bool has_key = pass(&ahead, '{') && here(&ahead) == '"';
    return has_key ? take_spelled(&ahead) : (nj_span){0};
}

bool nj_has_one_key(const nj_document *it)
{
    nj_document ahead = *it;
    if (!pass(&ahead, '{') || here(&ahead) != '"') {
        return false;
    }
    take_spelled(&ahead);
    ahead.at++;
    skip(&ahead);
    return here(&ahead) == '}';
}

static size_t characters(nj_span utf8)
{
    size_t count = 0;
    for (size_t i = 0; i < utf8.size; i++) {
        count += (utf8.at[i] & 0xc0) != 0x80;
    }
    return count;
}

bool nj_take_text_of(nj_document *it, size_t most, nj_span *text)
{
    if (here(it) != '"') {
        return nj_break(it->error, "type", kind_of(here(it)), "expected a string");
    }
    *text = take_spelled(it);
    if (it->decoded != NULL && text->size > 0 && memchr(text->at, '\\', text->size) != NULL) {
        unsigned char *to = it->decoded + it->decoded_size;
        *text = (nj_span){to, nj_text_decode(*text, to)};
        it->decoded_size += text->size;
    }
    size_t count = it->decoded == NULL ? text->size : characters(*text);
    return count <= most || nj_break(it->error, "size", nj_format("%zu", count).text, "expected at most %zu characters", most);
}

bool nj_take_text(nj_document *it, nj_span *text)
{
    return nj_take_text_of(it, NJ_TEXT_MAX, text);
}

bool nj_take_line(nj_document *it, nj_span *line)
{
    return nj_take_text(it, line) && (nj_is_printable(*line) || nj_break(it->error, "text", nj_quote(*line).text,
                                                                         "expected printable characters"));
}

bool nj_take_name(nj_document *it, nj_span *name)
{
    return nj_take_text(it, name) &&
           (nj_is_name(*name) || nj_break(it->error, "name", nj_quote(*name).text,
                                       "expected a name of letters, digits and ._- that starts with a letter or _"));
}

static bool is_digest(nj_span text)
{
    bool is = text.size == DIGEST_CHARS;
    for (size_t i = 0; is && i < text.size; i++) {
        is = (text.at[i] >= '0' && text.at[i] <= '9') || (text.at[i] >= 'a' && text.at[i] <= 'f');
    }
    return is;
}

bool nj_take_digest(nj_document *it, nj_span *digest)
{
    return nj_take_text(it, digest) && (is_digest(*digest) || nj_break(it->error, "digest", nj_quote(*digest).text,
                                                                       "expected 64 lower-case hex digits"));
}
