/* Fuzz what opening a bundle reads: the bytes as a header, as an index, as the header of a zstd frame, as a section, and as the
 * placement of images, whose number the last two bytes are; as a whole bundle in memory; and as the section of a kernel and as an
 * attachment in a bundle that is else right, of which everything is asked that needs no device. */
#include "bundle/frame.h"
#include "bundle/header.h"
#include "bundle/index.h"
#include "bundle/placement.h"
#include "bundle/text.h"
#include "base/sha256.h"
#include "nojit.h"

#include <limits.h>
#include <stdio.h>
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
        if (kernel->name.size == 0 || kernel->payload_bytes > NJ_PAYLOAD_BYTES_MAX || kernel->section.sha256.size != 64) {
            abort();
        }
    }
    for (size_t i = 0; good && i < index.attachment_count; i++) {
        nj_attachment_entry *attachment = &index.attachments[i];
        nj_stored_section *section = &attachment->section;
        if (attachment->name.size == 0 || section->sha256.size != 64 || section->raw_bytes > NJ_ATTACHMENT_BYTES_MAX ||
            section->stored_bytes > NJ_ATTACHMENT_BYTES_MAX) {
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
        nj_image_place place = nj_placement_find(&placement, i);
        if (place.start >= place.end || place.end > place.group.raw_bytes) {
            abort();
        }
    }
    nj_placement_close(&placement);
}

/* -- whole bundles -- */

enum { FRAME_HEAD_BYTES = 13, PAYLOAD_BYTES_MAX = 1 << 16, INDEX_ROOM = 1024, COUNT_BYTES = 6 };

/* Takes a frame of the form that `put_frame` writes. */
static int decompress(void *user, const void *frame, size_t frame_bytes, void *raw, size_t raw_bytes)
{
    (void)user;
    if (frame_bytes != raw_bytes + FRAME_HEAD_BYTES) {
        return 1;
    }
    memcpy(raw, (const unsigned char *)frame + FRAME_HEAD_BYTES, raw_bytes);
    return 0;
}

/* Writes bytes behind the head of a frame that declares their size. */
static size_t put_frame(unsigned char *to, const void *raw, size_t size)
{
    static const unsigned char start[] = {0x28, 0xb5, 0x2f, 0xfd, 0xe4};
    uint64_t declared = size;
    memcpy(to, start, sizeof start);
    memcpy(to + sizeof start, &declared, sizeof declared);
    memcpy(to + FRAME_HEAD_BYTES, raw, size);
    return FRAME_HEAD_BYTES + size;
}

/* Writes the index of a bundle of one kernel, and of one attachment that is stored as the kernel's section is. */
static size_t put_index(char *to, nj_span section, size_t stored_bytes, const unsigned counts[3], size_t payload_bytes)
{
    unsigned char digest[NJ_SHA256_BYTES];
    char spelled[NJ_SHA256_CHARS + 1], zeros[NJ_SHA256_CHARS + 1];
    memset(zeros, '0', NJ_SHA256_CHARS);
    zeros[NJ_SHA256_CHARS] = 0;
    nj_sha256(section, digest);
    nj_sha256_spell(digest, spelled);
    int length = snprintf(to, INDEX_ROOM,
                          "{\"attachments\":[{\"name\":\"a\",\"section\":{\"raw_bytes\":%zu,\"sha256\":\"%s\",\"stored_bytes\":%zu}}],"
                          "\"inputs\":\"%s\",\"kernels\":[{\"groups\":%u,\"images\":%u,\"name\":\"k\",\"payload_bytes\":%zu,"
                          "\"table\":{\"raw_bytes\":%zu,\"sha256\":\"%s\",\"stored_bytes\":%zu},\"variants\":%u}],\"min_driver\":12000,"
                          "\"name\":\"fuzz\",\"target\":{\"arch\":\"sm_90\",\"backend\":\"cuda\",\"image_arch\":\"sm_90a\","
                          "\"warp_size\":32},\"toolchain\":[],\"version\":\"1\"}",
                          stored_bytes - FRAME_HEAD_BYTES, spelled, stored_bytes, zeros, counts[2], counts[1], payload_bytes, stored_bytes - FRAME_HEAD_BYTES, spelled, stored_bytes, counts[0]);
    return (size_t)length;
}

static void ask_kernel(nj_kernel *kernel)
{
    const nj_keyword *settings;
    for (size_t i = 0; i < nj_kernel_param_count(kernel); i++) {
        nj_param_info info = {.size = sizeof info};
        nj_kernel_param(kernel, i, &info);
        if (info.name[0] == 0) {
            abort();
        }
    }
    for (size_t i = 0; i <= nj_kernel_config_count(kernel); i++) {
        size_t count = nj_kernel_config(kernel, i, &settings);
        for (size_t j = 0; j < count; j++) {
            if (settings[j].name == NULL || settings[j].value.kind > NJ_ARG_FUNCTION) {
                abort();
            }
        }
    }
}

static void open_whole(const unsigned char *bytes, size_t size)
{
    nj_error error = {.code = NJ_OK};
    nj_options options = NJ_OPTIONS_INIT;
    options.decompress = decompress;
    nj_bundle *bundle = nj_bundle_open_memory(bytes, size, &options, &error);
    if (bundle == NULL && (error.code == NJ_OK || error.what[0] == 0)) {
        abort();
    }
    nj_kernel *kernel = bundle == NULL ? NULL : nj_bundle_kernel(bundle, "k", &error);
    size_t bytes_attached = 0;
    const unsigned char *attached = bundle == NULL ? NULL : nj_bundle_attachment(bundle, "a", &bytes_attached, &error);
    unsigned sum = 0;
    for (size_t i = 0; attached != NULL && i < bytes_attached; i++) {
        sum += attached[i]; /* a sanitizer sees whether they are there */
    }
    if (sum == UINT_MAX) {
        abort();
    }
    if (kernel != NULL) {
        ask_kernel(kernel);
    }
    nj_bundle_close(bundle);
}

/* Makes the bytes the section of a bundle; the last six say how many variants, images and groups there are. */
static void open_section(const unsigned char *bytes, size_t size)
{
    nj_span section = {bytes, size - COUNT_BYTES};
    unsigned counts[3] = {nj_u16(bytes + size - 6), nj_u16(bytes + size - 4), nj_u16(bytes + size - 2)};
    size_t records = (size_t)counts[2] * NJ_GROUP_RECORD_BYTES + 4 * (size_t)counts[1], payload = 0;
    if (records <= section.size) {
        payload = (size_t)stored_bytes((nj_span){section.at + section.size - records, records}, counts[1]);
    }
    if (payload > PAYLOAD_BYTES_MAX) {
        return;
    }
    unsigned char *file = calloc(1, NJ_HEADER_BYTES + INDEX_ROOM + 2 * size + payload + (size_t)3 * FRAME_HEAD_BYTES);
    unsigned char *packed = malloc(size + FRAME_HEAD_BYTES);
    char index[INDEX_ROOM];
    if (file == NULL || packed == NULL) {
        abort();
    }
    size_t stored = put_frame(packed, section.at, section.size);
    uint64_t raw = put_index(index, (nj_span){packed, stored}, stored, counts, payload);
    uint64_t in_file = put_frame(file + NJ_HEADER_BYTES, index, (size_t)raw);
    memcpy(file, "nojit\r\n\x1a\2\0\0\0\0\0\0\0", 16);
    memcpy(file + 16, &in_file, sizeof in_file);
    memcpy(file + 24, &raw, sizeof raw);
    nj_sha256((nj_span){file + NJ_HEADER_BYTES, (size_t)in_file}, file + 32);
    for (size_t i = 0; i < 2; i++) {
        memcpy(file + NJ_HEADER_BYTES + in_file + i * stored, packed, stored);
    }
    open_whole(file, NJ_HEADER_BYTES + (size_t)in_file + 2 * stored + payload);
    free(packed);
    free(file);
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
    open_whole(bytes, size);
    if (size > COUNT_BYTES) {
        open_section(bytes, size);
    }
    return 0;
}
