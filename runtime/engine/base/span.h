/* A view of bytes in a buffer that the span does not own. */
#ifndef NOJIT_BASE_SPAN_H
#define NOJIT_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct {
    const unsigned char *at;
    size_t size;
} nj_span;

static inline bool nj_span_equal(nj_span a, nj_span b)
{
    return a.size == b.size && memcmp(a.at, b.at, b.size) == 0;
}

/* Compares the first byte first, because callers compare a span with many texts and most differ there. */
static inline bool nj_span_is(nj_span span, const char *text)
{
    return span.size == 0 ? *text == 0 : *span.at == (unsigned char)*text && span.size == strlen(text) && memcmp(span.at, text, span.size) == 0;
}

/* Orders spans by their bytes, which for UTF-8 is the order of code points. */
static inline int nj_span_compare(nj_span a, nj_span b)
{
    size_t common = a.size < b.size ? a.size : b.size;
    int order = common == 0 ? 0 : memcmp(a.at, b.at, common);
    return order != 0 ? order : a.size < b.size ? -1 : a.size > b.size;
}

#endif
