#include "bundle/frame.h"

#include "bundle/limits.h"

enum {
    START_BYTES = 6, /* magic number, frame header descriptor, and at least one more byte */
    BLOCK_HEADER_BYTES = 3,
    BLOCK_RLE = 1,
    BLOCK_RESERVED = 3,
    CHECKSUM_BYTES = 4,
    /* bits of the frame header descriptor */
    SINGLE_SEGMENT = 0x20,
    RESERVED = 0x08,
    CHECKSUM = 0x04,
    DICTIONARY = 0x03,
};

/* The only valid frame without content. It is compared as a whole, because some decoders ignore the rest of a frame of declared size 0. */
static const unsigned char empty[] = {0x28, 0xb5, 0x2f, 0xfd, 0x24, 0, 1, 0, 0, 0x99, 0xe9, 0xd8, 0x51};

static bool check_descriptor(unsigned char descriptor, nj_error *error)
{
    if ((descriptor & CHECKSUM) == 0) {
        return nj_break(error, "zstd-checksum", "", "expected a zstd frame with a checksum");
    }
    return (descriptor & (RESERVED | DICTIONARY)) == 0 ||
           nj_break(error, "zstd-header", nj_format("%#x", descriptor).text, "expected a zstd frame without dictionary");
}

/* Reads the Frame_Content_Size field; false if the frame has none. */
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

static bool refuse_end(nj_error *error, const char *got)
{
    return nj_break(error, "zstd-end", got, "expected one whole zstd frame and nothing after it");
}

/* Checks that the last block and the checksum end with the frame, because decompressors may stop once they have all bytes. */
static bool check_end(nj_cursor *cursor, nj_error *error)
{
    nj_span header, block;
    uint32_t word = 0;
    do {
        if (!nj_take(cursor, BLOCK_HEADER_BYTES, &header)) {
            return refuse_end(error, "no last block");
        }
        memcpy(&word, header.at, BLOCK_HEADER_BYTES);
        uint32_t kind = word >> 1 & 3, size = word >> 3;
        if (kind == BLOCK_RESERVED || !nj_take(cursor, kind == BLOCK_RLE ? 1 : size, &block)) {
            return refuse_end(error, kind == BLOCK_RESERVED ? "a reserved block" : "part of a block");
        }
    } while ((word & 1) == 0);
    return cursor->rest.size == CHECKSUM_BYTES || refuse_end(error, nj_format("%zu bytes behind the last block", cursor->rest.size).text);
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
    if (raw_bytes == 0 && (frame.size != sizeof empty || memcmp(frame.at, empty, sizeof empty) != 0)) {
        return nj_break(error, "zstd-empty", nj_format("%zu", frame.size).text, "expected the frame of 13 bytes that holds nothing");
    }
    return check_end(&cursor, error);
}
