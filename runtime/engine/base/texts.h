/* NUL-terminated texts, many in one allocation. */
#ifndef NOJIT_BASE_TEXTS_H
#define NOJIT_BASE_TEXTS_H

#include "base/span.h"

/* Copies a text and a NUL to `*at`, and moves `*at` past them. Returns the copy. */
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
