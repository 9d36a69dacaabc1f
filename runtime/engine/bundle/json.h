/* Canonical JSON (docs/bundle-format.md, section 4), read front to back. runtime/strict.py holds the rules and names the one
 * that is broken; here each function says only whether what follows is what is asked for, and then stands behind it. What
 * is canonical and not read here: escapes in texts, ints of 19 digits. */
#ifndef NOJIT_BUNDLE_JSON_H
#define NOJIT_BUNDLE_JSON_H

#include "base/internal.h"
#include "base/error.h"
#include "base/span.h"
#include "bundle/limits.h"

#include <stdint.h>

#define NJ_DIGITS_MAX 18 /* no int of so many overflows 64 bits */

typedef struct {
    const unsigned char *at;
    const unsigned char *end;
} nj_json;

/* Takes one character; false if another stands there. */
static inline bool nj_json_char(nj_json *json, char expected)
{
    if (json->at == json->end || *json->at != (unsigned char)expected) {
        return false;
    }
    json->at++;
    return true;
}

/* Takes exactly these characters, a literal: brackets, keys and all. */
static inline bool nj_json_is(nj_json *json, const char *expected)
{
    size_t length = strlen(expected);
    if ((size_t)(json->end - json->at) < length || memcmp(json->at, expected, length) != 0) {
        return false;
    }
    json->at += length;
    return true;
}

/* Takes an int that is not below 0. */
static inline bool nj_json_natural(nj_json *json, int64_t *number)
{
    const unsigned char *start = json->at, *at = start, *end = json->end;
    int64_t value = 0;
    while (at < end && *at >= '0' && *at <= '9' && at - start < NJ_DIGITS_MAX) {
        value = 10 * value + (*at++ - '0');
    }
    json->at = at;
    *number = value;
    /* one digit at least, no more than are counted, and no 0 before others */
    return at > start && !(at < end && *at >= '0' && *at <= '9') && (*start != '0' || at == start + 1);
}

/* Goes on in an array whose `[` is taken: 1 before an item, 0 behind the `]`, -1 if neither follows. */
NJ_INTERNAL int nj_json_item(nj_json *json, bool first);

NJ_INTERNAL bool nj_json_flag(nj_json *json, bool *flag);
NJ_INTERNAL bool nj_json_int(nj_json *json, int64_t *number);

/* Takes an int from `least` to `most`. */
NJ_INTERNAL bool nj_json_count(nj_json *json, int64_t least, int64_t most, int64_t *number);

/* Takes a text of printable ASCII without escapes, of at most `most` characters. */
NJ_INTERNAL bool nj_json_text(nj_json *json, size_t most, nj_span *text);

NJ_INTERNAL bool nj_json_name(nj_json *json, nj_span *name);

/* Takes a whole object, to be read by somebody else: its brackets come in pairs, no more is looked at. */
NJ_INTERNAL bool nj_json_object(nj_json *json, nj_span *object);

#endif
