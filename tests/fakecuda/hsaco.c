/* Reads the metadata of a hsaco for the fake libamdhip64. HIP itself lays out a launch by nothing else. */
#include "cubin.h"

#include <string.h>

struct cursor {
    const unsigned char *at;
};

static uint64_t number(struct cursor *cursor, int bytes) {
    uint64_t value = 0;
    while (bytes--)
        value = value << 8 | *cursor->at++;
    return value;
}

/* One value's head: its kind as the first letter of number, text, array, map, other; and its number or length. */
static char take(struct cursor *cursor, uint64_t *value) {
    unsigned head = *cursor->at++;
    *value = 0;
    if (head < 0x80)
        return *value = head, 'n';
    if (head < 0xc0)
        return *value = head & (head < 0xa0 ? 0xf : 0x1f), head < 0x90 ? 'm' : head < 0xa0 ? 'a' : 't';
    if (head >= 0xcc && head <= 0xcf)
        return *value = number(cursor, 1 << (head - 0xcc)), 'n';
    if (head >= 0xd9 && head <= 0xdb)
        return *value = number(cursor, 1 << (head - 0xd9)), 't';
    if (head >= 0xdc && head <= 0xdf)
        return *value = number(cursor, head & 1 ? 4 : 2), head < 0xde ? 'a' : 'm';
    return 'o';
}

static void skip(struct cursor *cursor) {
    uint64_t value;
    char kind = take(cursor, &value);
    if (kind == 't')
        cursor->at += value;
    for (uint64_t i = 0; (kind == 'a' && i < value) || (kind == 'm' && i < 2 * value); i++)
        skip(cursor);
}

static int is_key(const char *text, const unsigned char *key, uint64_t length) {
    return strlen(text) == length && memcmp(text, key, length) == 0;
}

static void read_argument(struct cursor *cursor, struct cubin_kernel *kernel) {
    uint64_t pairs, length, value;
    uint64_t offset = 0, size = 0;
    int hidden = 0;
    take(cursor, &pairs);
    while (pairs--) {
        take(cursor, &length);
        const unsigned char *key = cursor->at;
        cursor->at += length;
        struct cursor before = *cursor;
        char kind = take(&before, &value);
        if (is_key(".offset", key, length))
            offset = value;
        if (is_key(".size", key, length))
            size = value;
        if (is_key(".value_kind", key, length) && kind == 't')
            hidden = value > 7 && memcmp(before.at, "hidden_", 7) == 0;
        skip(cursor);
    }
    if (!hidden && kernel->params < CUBIN_PARAMS_MAX) {
        kernel->offsets[kernel->params] = (uint16_t)offset;
        kernel->sizes[kernel->params++] = (uint16_t)size;
    }
}

static void read_kernel(struct cursor *cursor, struct cubin_kernel *kernel) {
    uint64_t pairs, length, value;
    take(cursor, &pairs);
    while (pairs--) {
        take(cursor, &length);
        const unsigned char *key = cursor->at;
        cursor->at += length;
        struct cursor before = *cursor;
        char kind = take(&before, &value);
        if (is_key(".name", key, length) && kind == 't' && value < CUBIN_SYMBOL_MAX)
            memcpy(kernel->symbol, before.at, value);
        if (is_key(".max_flat_workgroup_size", key, length))
            kernel->reqntid[0] = (uint32_t)value, kernel->reqntid[1] = kernel->reqntid[2] = 1;
        if (is_key(".group_segment_fixed_size", key, length))
            kernel->static_shared = (uint32_t)value;
        if (is_key(".args", key, length)) {
            for (*cursor = before; value; value--)
                read_argument(cursor, kernel);
            continue;
        }
        skip(cursor);
    }
}

static unsigned gfx_of(uint32_t flags) {
    switch (flags & 0xff) {
    case 0x4c: return 942;
    case 0x4f: return 950;
    case 0x4e: return 1201;
    default: return 0;
    }
}

int hsaco_read(const unsigned char *image, struct cubin *out) {
    const unsigned char *headers = image + u64(image + 40);
    unsigned count = image[60] | image[61] << 8;
    out->sm = gfx_of(u32(image + 48));
    for (unsigned i = 1; i < count && out->sm; i++) {
        const unsigned char *header = headers + 64 * i;
        if (u32(header + 4) != 7)
            continue;
        const unsigned char *note = image + u64(header + 24);
        struct cursor cursor = {note + 12 + (u32(note) + 3) / 4 * 4};
        uint64_t pairs, length, kernels;
        take(&cursor, &pairs);
        while (pairs--) {
            take(&cursor, &length);
            const unsigned char *key = cursor.at;
            cursor.at += length;
            if (!is_key("amdhsa.kernels", key, length)) {
                skip(&cursor);
                continue;
            }
            take(&cursor, &kernels);
            while (kernels-- && out->kernels < CUBIN_KERNELS_MAX)
                read_kernel(&cursor, &out->kernel[out->kernels++]);
        }
    }
    return out->kernels != 0;
}
