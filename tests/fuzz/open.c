/* Fuzz what opening a bundle reads: the bytes as a header, as an index, as the header of a zstd frame, as a section, and as the
 * placement of images, whose number the last two bytes are. */
#include "bundle/frame.h"
#include "bundle/header.h"
#include "bundle/index.h"
#include "bundle/placement.h"
#include "bundle/text.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

/* A failure has a rule and words. */
static void expect(bool good, const nj_error *error)
{
    if (!good && (error->code != NJ_ERROR_FORMAT || error->rule[0] == 0 || error->what[0] == 0)) {
        abort();
    }
}

static void read_index(nj_span raw)
{
    nj_error error = {.code = NJ_OK};
    nj_index index;
    bool good = nj_index_read(raw, &index, &error);
    expect(good, &error);
    for (size_t i = 0; good && i < index.kernel_count; i++) {
        nj_kernel_entry *kernel = &index.kernels[i];
        if (kernel->name.size == 0 || kernel->payload_bytes > NJ_PAYLOAD_BYTES_MAX || kernel->section_sha256.size != 64) {
            abort();
        }
    }
    for (size_t i = 0; good && i < index.tool_count; i++) {
        if (!nj_is_printable(index.tools[i].name) || !nj_is_printable(index.tools[i].version)) {
            abort();
        }
    }
    nj_index_close(&index);
    /* with nobody to tell, the same is read */
    if (nj_index_read(raw, &index, NULL) != good) {
        abort();
    }
    nj_index_close(&index);
}

static uint64_t stored_bytes(nj_span raw, uint64_t images)
{
    uint64_t sum = 0;
    for (size_t at = (size_t)(4 * images); at + NJ_GROUP_RECORD_BYTES <= raw.size; at += NJ_GROUP_RECORD_BYTES) {
        sum += nj_u32(raw.at + at + 4);
    }
    return sum;
}

static void read_placement(nj_span raw, uint64_t images)
{
    nj_error error = {.code = NJ_OK};
    nj_placement placement;
    bool good = nj_placement_read(raw, images, stored_bytes(raw, images), &placement, &error);
    expect(good, &error);
    for (size_t i = 0; good && i < placement.images; i++) {
        nj_place place = nj_placement_find(&placement, i);
        if (place.start >= place.end || place.end > place.group.raw_bytes) {
            abort();
        }
    }
    nj_placement_close(&placement);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
    nj_span raw = {bytes, size}, table, rest;
    nj_error error = {.code = NJ_OK};
    nj_header header;
    expect(nj_header_read(raw, &header, &error), &error);
    read_index(raw);
    expect(nj_frame_check(raw, size > 6 ? bytes[5] : 0, &error), &error);
    if (size >= 2) {
        uint64_t images = nj_u16(bytes + size - 2);
        raw.size -= 2;
        expect(nj_section_split(raw, images, images / 4, &table, &rest, &error), &error);
        read_placement(raw, images);
    }
    return 0;
}
