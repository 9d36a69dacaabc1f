/* Canonical JSON (docs/bundle-format.md, chapter 4), read in two steps: `nj_check_json` checks all of its spelling, then each reader
 * takes what it expects, front to back. An error has its place: $.kernels[3].name. */
#ifndef NOJIT_JSON_DOCUMENT_H
#define NOJIT_JSON_DOCUMENT_H

#include "base/error.h"
#include "base/span.h"

#include <stdint.h>

typedef struct {
    const unsigned char *at, *end; /* checked JSON */
    nj_error *error;               /* may be NULL */
    unsigned char *decoded;        /* texts that have escapes, in UTF-8; NULL if there are none */
    size_t decoded_size;
} nj_document;

/* Takes one value, into what its caller knows. False with the error of the document filled where a rule is broken. */
typedef bool (*nj_taker)(nj_document *it, void *into);

typedef struct {
    const char *name;
    nj_taker take;
} nj_field;

/* Takes a whole document, which must outlive the texts that are read from it. The caller closes the document, whether or not this succeeds. */
bool nj_document_take(nj_document *it, nj_span raw, nj_taker take, void *into, nj_error *error);
void nj_document_close(nj_document *it);

/* Takes an object of exactly these fields, which are sorted by name and at most 32. */
bool nj_take_object(nj_document *it, const nj_field *fields, size_t count, void *into);

/* Takes an array of at most `most` items. */
bool nj_take_array(nj_document *it, size_t most, nj_taker take, void *into);

/* An integer of any length. */
typedef struct {
    nj_span spelled;
    uint64_t magnitude; /* the greatest there is if it does not fit */
    bool negative, fits;
} nj_integer;

bool nj_take_integer(nj_document *it, nj_integer *number);

/* Spells an integer for an error, which shows its first digits. */
nj_text nj_integer_text(const nj_integer *number);

/* Takes an integer from `least` to `most`. */
bool nj_take_count(nj_document *it, uint64_t least, uint64_t most, uint64_t *number);

bool nj_take_flag(nj_document *it, bool *flag);

/* Takes null; false, and nothing taken, if another value follows. */
bool nj_take_null(nj_document *it);

/* Takes any value, as it is spelled. */
nj_span nj_take_raw(nj_document *it);

/* The first key of an object that follows, as it is spelled; none if it is empty. */
nj_span nj_peek_key(const nj_document *it);

/* Whether an object of one key follows. */
bool nj_has_one_key(const nj_document *it);

/* Takes a string of at most `most` characters. */
bool nj_take_text_of(nj_document *it, size_t most, nj_span *text);

/* Each takes a string, as UTF-8: a text of at most 8,192 characters, one that is safe to show, a name, 64 hex digits. */
bool nj_take_text(nj_document *it, nj_span *text);
bool nj_take_line(nj_document *it, nj_span *line);
bool nj_take_name(nj_document *it, nj_span *name);
bool nj_take_digest(nj_document *it, nj_span *digest);

#endif
