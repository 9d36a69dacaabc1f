/* Reads canonical JSON (docs/bundle-format.md, chapter 4) in two steps: `nj_check_json` validates the syntax of the whole document, then
 * each reader takes the values that it expects, front to back. Errors have a place such as $.kernels[3].name. */
#ifndef NOJIT_JSON_DOCUMENT_H
#define NOJIT_JSON_DOCUMENT_H

#include "base/error.h"
#include "base/span.h"

#include <stdint.h>

typedef struct {
    const unsigned char *at, *end; /* the JSON that is not yet read; it is validated */
    nj_error *error;               /* may be NULL */
    unsigned char *decoded;        /* memory for texts with escapes, decoded to UTF-8; NULL if the document has no escapes */
    size_t decoded_size;
} nj_document;

/* Takes one value into `into`, whose type the taker knows. False with the document's error filled if the value breaks a rule. */
typedef bool (*nj_taker)(nj_document *it, void *into);

typedef struct {
    const char *name;
    nj_taker take;
} nj_field;

/* Validates and takes a whole document, which must outlive the texts that are read from it. The caller closes it in either case. */
bool nj_document_take(nj_document *it, nj_span raw, nj_taker take, void *into, nj_error *error);
void nj_document_close(nj_document *it);

/* Takes an object with exactly these fields. `fields` is sorted by name and has at most 32. */
bool nj_take_object(nj_document *it, const nj_field *fields, size_t count, void *into);

/* Takes an array of at most `most` items. */
bool nj_take_array(nj_document *it, size_t most, nj_taker take, void *into);

/* An integer of any length. */
typedef struct {
    nj_span spelled;     /* its text */
    uint64_t magnitude;  /* absolute value; UINT64_MAX if it does not fit */
    bool negative, fits; /* `fits`: the absolute value fits in 64 bits */
} nj_integer;

bool nj_take_integer(nj_document *it, nj_integer *number);

/* Returns the first 40 characters of an integer, for an error. */
nj_text nj_integer_text(const nj_integer *number);

/* Takes an integer from `least` to `most`. */
bool nj_take_count(nj_document *it, uint64_t least, uint64_t most, uint64_t *number);

bool nj_take_flag(nj_document *it, bool *flag);

/* Takes null. Returns false and takes nothing if the next value is another. */
bool nj_take_null(nj_document *it);

/* Takes any value and returns its JSON text. */
nj_span nj_take_raw(nj_document *it);

/* Returns the first key of the object that comes next, escapes included; empty if the object has no keys. */
nj_span nj_peek_key(const nj_document *it);

/* True if the next value is an object with one key. */
bool nj_has_one_key(const nj_document *it);

/* Takes a string of at most `most` characters. */
bool nj_take_text_of(nj_document *it, size_t most, nj_span *text);

/* Each takes a string as UTF-8: a text of at most 8,192 characters, a printable text (`nj_is_printable`), a name (`nj_is_name`), 64 hex
 * digits. */
bool nj_take_text(nj_document *it, nj_span *text);
bool nj_take_line(nj_document *it, nj_span *line);
bool nj_take_name(nj_document *it, nj_span *name);
bool nj_take_digest(nj_document *it, nj_span *digest);

#endif
