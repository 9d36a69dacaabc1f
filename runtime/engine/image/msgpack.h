/* Reads MessagePack, the encoding of hsacos' metadata, from untrusted bytes. */
#ifndef NOJIT_IMAGE_MSGPACK_H
#define NOJIT_IMAGE_MSGPACK_H

#include "base/cursor.h"

typedef enum {
    NJ_MSGPACK_NUMBER, /* a non-negative integer */
    NJ_MSGPACK_TEXT,
    NJ_MSGPACK_ARRAY,
    NJ_MSGPACK_MAP,
    NJ_PACK_OTHER, /* nil, bool, negative integer, float, bin or ext; no reader needs their values */
} nj_msgpack_kind;

typedef struct {
    nj_msgpack_kind kind;
    uint64_t number; /* the integer; or the number of items of an array or pairs of a map, which come next */
    nj_span text;
} nj_msgpack;

/* Takes the next value; of an array or a map only its header. False if the bytes end too early or are invalid. */
bool nj_msgpack_take(nj_cursor *cursor, nj_msgpack *value);

/* Skips the next value with everything in it. False as for `nj_msgpack_take`, or if values nest more than 16 deep. */
bool nj_msgpack_skip(nj_cursor *cursor);

#endif
