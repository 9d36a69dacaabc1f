/* Reads MessagePack, as the metadata of hsacos is written, from bytes that nobody trusts. */
#ifndef NOJIT_IMAGE_MSGPACK_H
#define NOJIT_IMAGE_MSGPACK_H

#include "base/cursor.h"

typedef enum {
    NJ_PACK_NUMBER, /* not negative */
    NJ_PACK_TEXT,
    NJ_PACK_ARRAY,
    NJ_PACK_MAP,
    NJ_PACK_OTHER, /* nil, a flag, a negative number, a float, bytes: skipped by all that read */
} nj_pack_kind;

typedef struct {
    nj_pack_kind kind;
    uint64_t number; /* of an array its items, of a map its pairs: they come next */
    nj_span text;
} nj_pack;

/* Takes the next value, of a container only its head; false if the bytes end before it, or hold none. */
bool nj_pack_take(nj_cursor *cursor, nj_pack *value);

/* Takes the next value with all that it contains; false too where containers nest deeper than 16. */
bool nj_pack_skip(nj_cursor *cursor);

#endif
