/* Texts that end with a 0, many in one piece of memory. */
#ifndef NOJIT_BASE_TEXTS_H
#define NOJIT_BASE_TEXTS_H

#include "base/span.h"

/* Copies a text and a 0 to `*at`, and goes on behind it. Returns where it starts. */
static inline const char *nj_text_put(char **at, nj_span text)
{
    char *start = *at;
    if (text.size > 0) {
        memcpy(start, text.at, text.size);
    }
    start[text.size] = 0;
    *at = start + text.size + 1;
    return start;
}

#endif
