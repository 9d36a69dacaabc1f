#include "bundle/placement.h"

#include "bundle/limits.h"

#include <stdlib.h>

enum { LENGTH_BYTES = 4 };

bool nj_section_check(uint64_t stored_bytes, uint64_t raw_bytes, nj_error *error)
{
    /* real tables compress far less than this; only hostile, repetitive ones exceed it */
    uint64_t most = NJ_FREE_BYTES + NJ_SECTION_RATIO_MAX * stored_bytes;
    return raw_bytes <= most || nj_break(error, "size", nj_format("%llu", (unsigned long long)raw_bytes).text,
                                         "expected a section that decompresses to at most %llu bytes, %d times what is stored",
                                         (unsigned long long)most, NJ_SECTION_RATIO_MAX);
}

bool nj_section_split(nj_span raw, uint64_t images, uint64_t groups, nj_span *table, nj_span *placement, nj_error *error)
{
    nj_cursor cursor = {raw};
    bool counts = images <= NJ_VARIANTS_MAX && groups <= NJ_VARIANTS_MAX;
    uint64_t size = counts ? LENGTH_BYTES * images + NJ_GROUP_RECORD_BYTES * groups : 0;
    if (!counts || size > raw.size || !nj_take(&cursor, raw.size - size, table)) {
        return nj_break(error, "truncated", nj_format("%zu bytes", raw.size).text, "expected a section with a table, %llu images and %llu groups",
                        (unsigned long long)images, (unsigned long long)groups);
    }
    *placement = cursor.rest;
    return true;
}

nj_group nj_placement_group(const nj_placement *it, size_t number)
{
    const unsigned char *record = it->records + number * NJ_GROUP_RECORD_BYTES;
    return (nj_group){nj_u32(record), nj_u32(record + 4), nj_u32(record + 8), record + 12};
}

static bool add_images(nj_placement *it, const unsigned char *lengths, nj_error *error)
{
    it->image_starts[0] = 0;
    for (size_t i = 0; i < it->images; i++) {
        uint32_t length = nj_u32(lengths + i * LENGTH_BYTES);
        if (length == 0 || length > NJ_IMAGE_BYTES_MAX) {
            return nj_break(error, "size", nj_format("image %zu of %u", i, length).text, "expected images of 1 to %d bytes", NJ_IMAGE_BYTES_MAX);
        }
        it->image_starts[i + 1] = it->image_starts[i] + length;
    }
    return true;
}

/* Checks that each group holds at least one image, and all groups together hold all images. */
static bool count_images(nj_placement *it, nj_error *error)
{
    uint64_t first = 0;
    bool whole = true;
    for (size_t i = 0; i < it->groups; i++) {
        uint32_t images = nj_placement_group(it, i).images;
        it->firsts[i] = first;
        whole = whole && images > 0;
        first += images;
    }
    return (whole && first == it->images) || nj_break(error, "groups", nj_format("%llu", (unsigned long long)first).text,
                                                      "expected groups of at least one image each, %zu in all", it->images);
}

static bool check_group(const nj_placement *it, size_t number, nj_error *error)
{
    nj_group group = nj_placement_group(it, number);
    size_t first = (size_t)it->firsts[number];
    uint64_t holds = it->image_starts[first + group.images] - it->image_starts[first];
    if (group.raw_bytes != holds || holds > NJ_GROUP_BYTES_MAX || group.stored_bytes > NJ_GROUP_BYTES_MAX) {
        nj_note_break(error, "groups", nj_format("%u raw, %u stored", group.raw_bytes, group.stored_bytes).text,
                      "expected a group of %llu raw bytes, and at most %d bytes raw and stored", (unsigned long long)holds,
                      NJ_GROUP_BYTES_MAX);
        nj_note_step(error, "group %zu", number);
        return false;
    }
    return true;
}

static bool check_groups(nj_placement *it, uint64_t payload_bytes, nj_error *error)
{
    uint64_t stored = 0, raw = 0;
    for (size_t i = 0; i < it->groups; i++) {
        if (!check_group(it, i, error)) {
            return false;
        }
        nj_group group = nj_placement_group(it, i);
        it->stored_starts[i] = stored;
        stored += group.stored_bytes;
        raw += group.raw_bytes;
    }
    if (stored != payload_bytes) {
        return nj_break(error, "groups", nj_format("%llu", (unsigned long long)stored).text, "expected groups of %llu bytes in all",
                        (unsigned long long)payload_bytes);
    }
    uint64_t most = NJ_FREE_BYTES + NJ_PAYLOAD_RATIO_MAX * stored;
    return raw <= most || nj_break(error, "size", nj_format("%llu", (unsigned long long)raw).text,
                                   "expected groups that decompress to at most %llu bytes, %d times what is stored",
                                   (unsigned long long)most, NJ_PAYLOAD_RATIO_MAX);
}

bool nj_placement_read(nj_span raw, uint64_t images, uint64_t payload_bytes, nj_placement *it, nj_error *error)
{
    nj_cursor cursor = {raw};
    nj_span lengths;
    *it = (nj_placement){0};
    if (images > NJ_VARIANTS_MAX || !nj_take(&cursor, LENGTH_BYTES * images, &lengths) || cursor.rest.size % NJ_GROUP_RECORD_BYTES != 0 ||
        cursor.rest.size / NJ_GROUP_RECORD_BYTES > NJ_VARIANTS_MAX) {
        return nj_break(error, "groups", "", "expected whole images and groups");
    }
    size_t groups = cursor.rest.size / NJ_GROUP_RECORD_BYTES;
    it->records = cursor.rest.at;
    it->images = (size_t)images;
    it->groups = groups;
    it->image_starts = malloc((it->images + 1 + 2 * groups) * sizeof *it->image_starts);
    if (it->image_starts == NULL) {
        return nj_no_memory(error);
    }
    it->stored_starts = it->image_starts + it->images + 1;
    it->firsts = it->stored_starts + groups;
    return add_images(it, lengths.at, error) && count_images(it, error) && check_groups(it, payload_bytes, error);
}

void nj_placement_close(nj_placement *it)
{
    free(it->image_starts);
    *it = (nj_placement){0};
}

nj_image_place nj_placement_find(const nj_placement *it, size_t image)
{
    size_t low = 0, high = it->groups;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (it->firsts[middle] <= image) {
            low = middle;
        } else {
            high = middle;
        }
    }
    uint64_t before = it->image_starts[it->firsts[low]];
    return (nj_image_place){low, nj_placement_group(it, low), it->stored_starts[low], it->image_starts[image] - before,
                      it->image_starts[image + 1] - before};
}
