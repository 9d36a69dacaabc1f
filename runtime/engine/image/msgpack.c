#include "image/msgpack.h"

enum { DEPTH_MAX = 16 };

/* Takes a big-endian number of 1 to 8 bytes. */
static bool take_number(nj_cursor *cursor, size_t bytes, uint64_t *number)
{
    nj_span taken;
    if (!nj_take(cursor, bytes, &taken)) {
        return false;
    }
    *number = 0;
    for (size_t i = 0; i < bytes; i++) {
        *number = *number << 8 | taken.at[i];
    }
    return true;
}

static bool take_counted(nj_cursor *cursor, nj_msgpack_kind kind, size_t bytes, nj_msgpack *value)
{
    value->kind = kind;
    return take_number(cursor, bytes, &value->number) && (kind != NJ_MSGPACK_TEXT || nj_take(cursor, value->number, &value->text));
}

static bool take_other(nj_cursor *cursor, uint64_t bytes, nj_msgpack *value)
{
    value->kind = NJ_PACK_OTHER;
    return nj_take(cursor, bytes, &value->text);
}

/* Takes a bin or ext value, which starts with its length; an ext has a type byte more. */
static bool take_bytes(nj_cursor *cursor, size_t bytes, size_t more, nj_msgpack *value)
{
    uint64_t size;
    return take_number(cursor, bytes, &size) && take_other(cursor, size + more, value);
}

/* Takes the rest of a value whose first byte is 0xc0 to 0xdf. */
static bool take_long(nj_cursor *cursor, unsigned char head, nj_msgpack *value)
{
    switch (head) {
    case 0xc0: case 0xc2: case 0xc3: return take_other(cursor, 0, value);
    case 0xc4: case 0xc5: case 0xc6: return take_bytes(cursor, (size_t)1 << (head - 0xc4), 0, value);
    case 0xc7: case 0xc8: case 0xc9: return take_bytes(cursor, (size_t)1 << (head - 0xc7), 1, value);
    case 0xca: case 0xcb: return take_other(cursor, head == 0xca ? 4 : 8, value);
    case 0xcc: case 0xcd: case 0xce: case 0xcf: return take_counted(cursor, NJ_MSGPACK_NUMBER, (size_t)1 << (head - 0xcc), value);
    case 0xd0: case 0xd1: case 0xd2: case 0xd3: return take_other(cursor, (size_t)1 << (head - 0xd0), value);
    case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8: return take_other(cursor, 1 + ((size_t)1 << (head - 0xd4)), value);
    case 0xd9: case 0xda: case 0xdb: return take_counted(cursor, NJ_MSGPACK_TEXT, (size_t)1 << (head - 0xd9), value);
    case 0xdc: case 0xdd: return take_counted(cursor, NJ_MSGPACK_ARRAY, head == 0xdc ? 2 : 4, value);
    case 0xde: case 0xdf: return take_counted(cursor, NJ_MSGPACK_MAP, head == 0xde ? 2 : 4, value);
    default: return false; /* 0xc1 is never used */
    }
}

bool nj_msgpack_take(nj_cursor *cursor, nj_msgpack *value)
{
    nj_span first;
    *value = (nj_msgpack){0};
    if (!nj_take(cursor, 1, &first)) {
        return false;
    }
    unsigned char head = first.at[0];
    if (head < 0x80) {
        *value = (nj_msgpack){.kind = NJ_MSGPACK_NUMBER, .number = head};
    } else if (head < 0xa0) {
        *value = (nj_msgpack){.kind = head < 0x90 ? NJ_MSGPACK_MAP : NJ_MSGPACK_ARRAY, .number = head & 0xf};
    } else if (head < 0xc0) {
        *value = (nj_msgpack){.kind = NJ_MSGPACK_TEXT, .number = head & 0x1f};
        return nj_take(cursor, value->number, &value->text);
    } else if (head >= 0xe0) {
        value->kind = NJ_PACK_OTHER;
    } else {
        return take_long(cursor, head, value);
    }
    return true;
}

static bool skip(nj_cursor *cursor, int depth)
{
    nj_msgpack value;
    if (depth == 0 || !nj_msgpack_take(cursor, &value)) {
        return false;
    }
    uint64_t each = value.kind == NJ_MSGPACK_MAP ? 2 : value.kind == NJ_MSGPACK_ARRAY ? 1 : 0;
    /* a false count cannot loop long, because every value takes at least one byte */
    for (uint64_t i = 0; i < each * value.number; i++) {
        if (!skip(cursor, depth - 1)) {
            return false;
        }
    }
    return true;
}

bool nj_msgpack_skip(nj_cursor *cursor)
{
    return skip(cursor, DEPTH_MAX);
}
