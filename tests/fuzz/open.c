/* Fuzz what opening a bundle reads: the bytes as a header, as an index, as a zstd frame, as a section, and as the placement of images,
 * whose number the last two bytes are; as a whole bundle, in memory and in a file; and as the section of a kernel and as an attachment
 * in an otherwise valid bundle, on which the target calls everything that needs no device. */
#define _GNU_SOURCE /* memfd_create */
#include "api/kernel.h"
#include "bundle/frame.h"
#include "bundle/header.h"
#include "bundle/index.h"
#include "bundle/placement.h"
#include "json/text.h"
#include "bundle/zstd.h"
#include "base/sha256.h"
#include "nojit.h"
#include "starve.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The frame of a few bytes, decompressed by libzstd. */
static void read_frame(nj_span raw)
{
    nj_error error = {.code = NJ_OK};
    size_t raw_bytes = raw.size > 6 ? raw.at[5] : 0;
    bool good = nj_frame_check(raw, raw_bytes, &error);
    fuzz_expect(good, &error, true);
    if (good) {
        unsigned char *room = malloc(raw_bytes);
        fuzz_expect(nj_zstd_decompress(NULL, raw, room, raw_bytes, &error), &error, false);
        free(room);
    }
}

static void read_index(nj_span raw)
{
    nj_error error = {.code = NJ_OK};
    nj_index index;
    bool good = nj_index_read(raw, &index, &error);
    fuzz_expect(good, &error, true);
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
    for (int capability = 50; good && capability < 130; capability++) {
        nj_image_arch arch = nj_image_arch_read(index.image_arch);
        if (capability == arch.number && nj_image_fit(arch, capability) <= 0) {
            abort();
        }
        nj_image_fit(arch, capability);
    }
    for (size_t i = 0; good && i < index.tool_count; i++) {
        if (!nj_is_printable(index.tools[i].name) || !nj_is_printable(index.tools[i].version)) {
            abort();
        }
    }
    nj_index_close(&index);
    /* with nobody to tell, the same is read */
    if (nj_index_read(raw, &index, NULL) != good && !fuzz_is_starved()) {
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
    fuzz_expect(good, &error, true);
    for (size_t i = 0; good && i < placement.images; i++) {
        nj_image_place place = nj_placement_find(&placement, i);
        if (place.start >= place.end || place.end > place.group.raw_bytes) {
            abort();
        }
    }
    nj_placement_close(&placement);
}

/* -- whole bundles -- */

enum { FRAME_HEAD_BYTES = 13, BLOCK_HEAD_BYTES = 3, SUM_BYTES = 4, FRAME_BYTES = FRAME_HEAD_BYTES + BLOCK_HEAD_BYTES + SUM_BYTES, GROUP_BYTES_MAX = 1 << 14, PAYLOAD_BYTES_MAX = 1 << 16, INDEX_ROOM = 1024, COUNT_BYTES = 7,
       IMAGES_MAX = 64 };

/* Takes a frame of the form that `put_frame` writes. */
static int decompress(void *user, const void *frame, size_t frame_bytes, void *raw, size_t raw_bytes)
{
    (void)user;
    if (frame_bytes != raw_bytes + FRAME_BYTES) {
        return 1;
    }
    memcpy(raw, (const unsigned char *)frame + FRAME_HEAD_BYTES + BLOCK_HEAD_BYTES, raw_bytes);
    return 0;
}

/* Writes bytes as the one block of a frame that declares their size. */
static size_t put_frame(unsigned char *to, const void *raw, size_t size)
{
    static const unsigned char start[] = {0x28, 0xb5, 0x2f, 0xfd, 0xe4};
    uint64_t declared = size;
    uint32_t last_and_plain = 1 | (uint32_t)size << 3;
    memcpy(to, start, sizeof start);
    memcpy(to + sizeof start, &declared, sizeof declared);
    memcpy(to + FRAME_HEAD_BYTES, &last_and_plain, BLOCK_HEAD_BYTES);
    memcpy(to + FRAME_HEAD_BYTES + BLOCK_HEAD_BYTES, raw, size);
    memset(to + FRAME_BYTES - SUM_BYTES + size, 0, SUM_BYTES);
    return FRAME_BYTES + size;
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
                          stored_bytes - FRAME_BYTES, spelled, stored_bytes, zeros, counts[2], counts[1], payload_bytes,
                          stored_bytes - FRAME_BYTES, spelled, stored_bytes, counts[0]);
    return (size_t)length;
}

static void ask_kernel(nj_kernel *kernel)
{
    nj_error error = {.code = NJ_OK};
    nj_kernel_info about = NJ_KERNEL_INFO_INIT;
    if (nj_kernel_about(kernel, &about, &error) != NJ_OK || about.name[0] == 0) {
        abort();
    }
    for (size_t i = 0; i < about.param_count; i++) {
        nj_param_info info = NJ_PARAM_INFO_INIT;
        if (nj_kernel_param(kernel, i, &info, &error) != NJ_OK || info.name[0] == 0) {
            abort();
        }
    }
    for (size_t i = 0; i < about.config_count; i++) {
        nj_config_info info = NJ_CONFIG_INFO_INIT;
        bool told = nj_kernel_config(kernel, i, &info, &error) == NJ_OK;
        fuzz_expect(told, &error, true);
        for (size_t j = 0; told && j < info.setting_count; j++) {
            if (info.settings[j].name == NULL || info.settings[j].value.kind > NJ_ARG_FUNCTION) {
                abort();
            }
        }
    }
}

/* Reads images, twice each: the second time out of the group that is kept. */
static void ask_images(nj_kernel *kernel)
{
    nj_reader *reader = &kernel->bundle->reader;
    nj_error error = {.code = NJ_OK};
    for (size_t i = 0; i < 2 * kernel->placement.images && i < IMAGES_MAX; i++) {
        nj_image_bytes image;
        bool read = nj_reader_image(reader, kernel->number, &kernel->placement, i / 2, &image, &error);
        fuzz_expect(read, &error, false);
        if (read) {
            nj_image_place place = nj_placement_find(&kernel->placement, i / 2);
            if (image.content.size != place.end - place.start) {
                abort();
            }
            nj_sha256(image.content, (unsigned char[NJ_SHA256_BYTES]){0});
            nj_image_drop(&image);
        }
    }
}

static void ask_attachment(nj_bundle *bundle)
{
    nj_error error = {.code = NJ_OK};
    size_t size = 0;
    const unsigned char *content = nj_bundle_attachment(bundle, "a", &size, &error);
    fuzz_expect(content != NULL, &error, false);
    if (content != NULL) {
        nj_sha256((nj_span){content, size}, (unsigned char[NJ_SHA256_BYTES]){0});
    }
    if (nj_bundle_attachment(bundle, "k", &size, &error) != NULL) {
        abort();
    }
}

static void ask_bundle(nj_bundle *bundle)
{
    nj_error error = {.code = NJ_OK};
    nj_kernel *kernel = nj_bundle_kernel(bundle, "k", &error);
    fuzz_expect(kernel != NULL, &error, false);
    if (kernel != NULL) {
        ask_kernel(kernel);
        ask_images(kernel);
    }
    for (int i = 0; i < 2; i++) {
        if (nj_bundle_kernel(bundle, i == 0 ? "a" : "z", &error) != NULL) {
            abort();
        }
        /* the second time out of what is kept */
        ask_attachment(bundle);
    }
    fuzz_expect(nj_reader_check_index(&bundle->reader, &error), &error, false);
}

/* Opens the same bytes as a file: it is a bundle if they are one in memory. */
static void open_file(const unsigned char *bytes, size_t size, const nj_options *options, bool expected)
{
    char path[64];
    nj_error error = {.code = NJ_OK};
    int file = memfd_create("bundle", MFD_CLOEXEC);
    if (file < 0 || write(file, bytes, size) != (ssize_t)size) {
        abort();
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    nj_bundle *bundle = nj_bundle_open(path, options, &error);
    fuzz_expect(bundle != NULL, &error, false);
    if ((bundle != NULL) != expected && !fuzz_is_starved()) {
        abort();
    }
    if (bundle != NULL) {
        ask_bundle(bundle);
    }
    nj_bundle_close(bundle);
    close(file);
}

static void open_whole(const unsigned char *bytes, size_t size)
{
    nj_error error = {.code = NJ_OK};
    nj_options options = NJ_OPTIONS_INIT;
    options.decompress = decompress;
    nj_bundle *bundle = nj_bundle_open_memory(bytes, size, &options, &error);
    bool open = bundle != NULL;
    fuzz_expect(open, &error, false);
    if (open) {
        ask_bundle(bundle);
    }
    nj_bundle_close(bundle);
    /* system calls take longer than all else */
    if (size % 16 == 0) {
        open_file(bytes, size, &options, open);
    }
}

/* What is known of architectures. */
static void ask_archs(void)
{
    for (size_t i = 0; nj_image_family(i).name != 0; i++) {
        nj_family_member member = nj_image_family(i);
        if (nj_image_fit((nj_image_arch){member.name, 'f'}, member.member) <= 0) {
            abort();
        }
    }
    for (size_t i = 0; nj_lone_arch(i) != 0; i++) {
        if (nj_image_fit((nj_image_arch){nj_lone_arch(i), 0}, nj_lone_arch(i) + 1) != 0) {
            abort();
        }
    }
}

/* What is no regular file, and what is not there. */
static void open_others(void)
{
    static const char *const paths[] = {"/", "/tmp", "/dev/null", "/proc/self/fd/none"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        nj_error error = {.code = NJ_OK};
        if (nj_bundle_open(paths[i], NULL, &error) != NULL) {
            abort();
        }
        fuzz_expect(false, &error, false);
    }
}

/* Makes each group what its record declares, frames of zeros, and writes that into the records; returns the size of all, and does no
 * more than that if `to` is NULL. */
static size_t put_groups(unsigned char *records, size_t count, unsigned char *to)
{
    static const unsigned char zeros[GROUP_BYTES_MAX];
    size_t size = 0;
    for (size_t i = 0; i < count; i++, records += NJ_GROUP_RECORD_BYTES) {
        uint32_t raw = nj_u32(records + 8), stored = raw + FRAME_BYTES;
        if (raw > GROUP_BYTES_MAX || size + stored > PAYLOAD_BYTES_MAX) {
            continue;
        }
        if (to != NULL) {
            put_frame(to + size, zeros, raw);
            memcpy(records + 4, &stored, sizeof stored);
            nj_sha256((nj_span){to + size, stored}, records + 12);
        }
        size += stored;
    }
    return size;
}

/* Opens a bundle of one kernel, and of an attachment that is its section again; `images` may be NULL for zeros. */
static void seal(nj_span section, const unsigned counts[3], const unsigned char *images, size_t payload)
{
    unsigned char *file = calloc(1, NJ_HEADER_BYTES + INDEX_ROOM + 2 * section.size + payload + (size_t)3 * FRAME_BYTES);
    unsigned char *packed = malloc(section.size + FRAME_BYTES);
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
    if (images != NULL) {
        memcpy(file + NJ_HEADER_BYTES + in_file + 2 * stored, images, payload);
    }
    open_whole(file, NJ_HEADER_BYTES + (size_t)in_file + 2 * stored + payload);
    free(packed);
    free(file);
}

/* Makes the bytes the section of a bundle; the last seven say how many variants, images and groups there are, and whether groups are
 * made to be what their records declare. */
static void open_section(const unsigned char *bytes, size_t size)
{
    nj_span section = {bytes, size - COUNT_BYTES};
    unsigned counts[3] = {nj_u16(bytes + size - 7), nj_u16(bytes + size - 5), nj_u16(bytes + size - 3)};
    size_t groups = (size_t)counts[2] * NJ_GROUP_RECORD_BYTES, records = groups + 4 * (size_t)counts[1], payload = 0;
    unsigned char *copy = malloc(size), *images = NULL;
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, section.at, section.size);
    section.at = copy;
    if (records <= section.size && bytes[size - 1] % 2 == 1) {
        unsigned char *at = copy + section.size - groups;
        images = calloc(1, put_groups(at, counts[2], NULL) + 1);
        payload = put_groups(at, counts[2], images);
    } else if (records <= section.size) {
        payload = (size_t)stored_bytes((nj_span){copy + section.size - records, records}, counts[1]);
    }
    if (payload <= PAYLOAD_BYTES_MAX) {
        seal(section, counts, images, payload);
    }
    free(images);
    free(copy);
}

void fuzz_input(const unsigned char *bytes, size_t size)
{
    nj_span raw = {bytes, size}, table, rest;
    nj_error error = {.code = NJ_OK};
    nj_header header;
    fuzz_expect(nj_header_read(raw, &header, &error), &error, true);
    read_index(raw);
    read_frame(raw);
    if (size >= 2) {
        uint64_t images = nj_u16(bytes + size - 2);
        raw.size -= 2;
        fuzz_expect(nj_section_split(raw, images, images / 4, &table, &rest, &error), &error, true);
        read_placement(raw, images);
    }
    open_whole(bytes, size);
    if (size > COUNT_BYTES) {
        open_section(bytes, size);
    }
    if (size == 0) {
        open_others();
        ask_archs();
    }
}
