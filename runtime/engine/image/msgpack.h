/* Reads MessagePack, as the metadata of hsacos is written, from bytes that nobody trusts. */
#ifndef NOJIT_IMAGE_MSGPACK_H
#define NOJIT_IMAGE_MSGPACK_H

#include "base/cursor.h"

typedef enum {
    NJ_MSGPACK_NUMBER, /* not negative */
    NJ_MSGPACK_TEXT,
    NJ_MSGPACK_ARRAY,
    NJ_MSGPACK_MAP,
    NJ_PACK_OTHER, /* nil, a flag, a negative number, a float, bytes: skipped by all that read */
} nj_msgpack_kind;

typedef struct {
    nj_msgpack_kind kind;
    uint64_t number; /* of an array its items, of a map its pairs: they come next */
    nj_span text;
} nj_msgpack;

/* Takes the next value, of a container only its head; false if the bytes end before it, or hold none. */
bool nj_msgpack_take(nj_cursor *cursor, nj_msgpack *value);

/* Takes the next value with all that it contains; false too where containers nest deeper than 16. */
bool nj_msgpack_skip(nj_cursor *cursor);

#endif
