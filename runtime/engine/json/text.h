/* Texts of canonical JSON as they stand between the quotes, escapes included. */
#ifndef NOJIT_JSON_TEXT_H
#define NOJIT_JSON_TEXT_H

#include "base/internal.h"
#include "base/span.h"

#include <stdint.h>

/* Takes the next code point of a validated text that is not empty. */
uint32_t nj_text_next(nj_span *rest);

/* True if `before` sorts before `text` by code point; both are validated. */
bool nj_text_ascends(nj_span before, nj_span text);

/* Decodes a validated text to UTF-8, which is never longer than the text. Returns the number of bytes written. */
size_t nj_text_decode(nj_span text, unsigned char *to);

/* True if UTF-8 is safe to print: it has no control, format or private-use characters, no line ends, and no spaces other than ' '. */
NJ_FOR_BINDING bool nj_is_printable(nj_span utf8);

/* True if UTF-8 is a name: it starts with a letter or _, continues with letters, digits and any of ._-, and has at most 200 characters. */
NJ_FOR_BINDING bool nj_is_name(nj_span utf8);

#endif
