/* Texts of canonical JSON, as they are spelled: between the quotes, escapes and all. */
#ifndef NOJIT_JSON_TEXT_H
#define NOJIT_JSON_TEXT_H

#include "base/internal.h"
#include "base/span.h"

#include <stdint.h>

/* Takes the next code point of a checked text, which is not empty. */
uint32_t nj_text_next(nj_span *rest);

/* Whether a checked text comes before another, by code point. */
bool nj_text_ascends(nj_span before, nj_span text);

/* Writes a checked text in UTF-8, which is never longer than it was. Returns the bytes written. */
size_t nj_text_decode(nj_span text, unsigned char *to);

/* Whether UTF-8 is safe to show: no control or format character, private character, line end or space but the usual one. */
NJ_FOR_BINDING bool nj_is_printable(nj_span utf8);

/* Whether UTF-8 is a name: letters, digits and ._- after a letter or _, never a path. */
NJ_FOR_BINDING bool nj_is_name(nj_span utf8);

#endif
