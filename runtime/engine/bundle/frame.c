#include "bundle/frame.h"

#include "bundle/limits.h"

enum {
    START_BYTES = 6, /* magic, descriptor, and a byte more */
    /* bits of the descriptor */
    SINGLE_SEGMENT = 0x20,
    RESERVED = 0x08,
    CHECKSUM = 0x04,
    DICTIONARY = 0x03,
};

/* The one frame that holds nothing: some decoders look no further than a declared size of 0. */
static const unsigned char empty[] = {0x28, 0xb5, 0x2f, 0xfd, 0x24, 0, 1, 0, 0, 0x99, 0xe9, 0xd8, 0x51};

static bool check_descriptor(unsigned char descriptor, nj_error *error)
{
    if ((descriptor & CHECKSUM) == 0) {
        return nj_break(error, "zstd-checksum", "", "expected a zstd frame with a checksum");
    }
    return (descriptor & (RESERVED | DICTIONARY)) == 0 ||
           nj_break(error, "zstd-header", nj_format("%#x", descriptor).text, "expected a zstd frame without dictionary");
}

/* Takes the size that a frame declares; false if it declares none. */
static bool take_size(nj_cursor *cursor, unsigned char descriptor, uint64_t *size)
{
    static const size_t widths[] = {0, 2, 4, 8};
    nj_span field;
    size_t width = descriptor >> 6 == 0 && (descriptor & SINGLE_SEGMENT) != 0 ? 1 : widths[descriptor >> 6];
    if (width == 0 || !nj_take(cursor, width, &field)) {
        return false;
    }
    *size = 0;
    memcpy(size, field.at, width);
    *size += width == 2 ? 256 : 0;
    return true;
}

static uint64_t window_bytes(unsigned char descriptor)
{
    uint64_t base = (uint64_t)1 << (10 + (descriptor >> 3));
    return base + base / 8 * (descriptor & 7);
}

bool nj_frame_check(nj_span frame, uint64_t raw_bytes, nj_error *error)
{
    nj_cursor cursor = {frame};
    nj_span start, window = {0};
    uint64_t size;
    if (frame.size < START_BYTES || memcmp(frame.at, empty, 4) != 0) {
        return nj_break(error, "zstd-magic", nj_quote((nj_span){frame.at, frame.size < 4 ? frame.size : 4}).text, "expected a zstd frame");
    }
    unsigned char descriptor = frame.at[4];
    bool single = (descriptor & SINGLE_SEGMENT) != 0;
    if (!check_descriptor(descriptor, error)) {
        return false;
    }
    if (!nj_take(&cursor, START_BYTES - 1, &start) || (!single && !nj_take(&cursor, 1, &window)) ||
        !take_size(&cursor, descriptor, &size)) {
        return nj_break(error, "zstd-size", "", "expected a zstd frame that declares its size");
    }
    if (size != raw_bytes) {
        return nj_break(error, "zstd-size", nj_format("%llu", (unsigned long long)size).text, "expected a frame of %llu bytes",
                        (unsigned long long)raw_bytes);
    }
    if (!single && window_bytes(window.at[0]) > (uint64_t)1 << NJ_WINDOW_LOG_MAX) {
        return nj_break(error, "zstd-window", "", "expected a window of at most %d bytes", 1 << NJ_WINDOW_LOG_MAX);
    }
    return raw_bytes != 0 || (frame.size == sizeof empty && memcmp(frame.at, empty, sizeof empty) == 0) ||
           nj_break(error, "zstd-empty", nj_format("%zu", frame.size).text, "expected the frame of 13 bytes that holds nothing");
}
