#include "bundle/reader.h"

#include "bundle/frame.h"
#include "bundle/header.h"

#include <stdatomic.h>
#include <stdlib.h>

struct nj_group_bytes {
    atomic_uint holders;
    size_t kernel, number;
    unsigned char raw[];
};

/* A compressed part of the file. */
typedef struct {
    uint64_t start, raw_bytes;
    size_t stored_bytes;
    const unsigned char *sha256; /* digest of the stored bytes */
} nj_part_place;

static bool check_digest(nj_span stored, const unsigned char *sha256, nj_error *error)
{
    unsigned char digest[NJ_SHA256_BYTES];
    char expected[NJ_SHA256_CHARS + 1], got[NJ_SHA256_CHARS + 1];
    nj_sha256(stored, digest);
    if (memcmp(digest, sha256, sizeof digest) == 0) {
        return true;
    }
    nj_sha256_spell(sha256, expected);
    nj_sha256_spell(digest, got);
    return nj_differ(error, got, "expected SHA-256 %s", expected);
}

bool nj_frame_read(const nj_reader_calls *calls, nj_span frame, void *raw, uint64_t raw_bytes, nj_error *error)
{
    return nj_frame_check(frame, raw_bytes, error) &&
           (raw_bytes == 0 || calls->decompress(calls->context, frame, raw, (size_t)raw_bytes, error));
}

/* Reads the stored bytes of a part into new memory and checks their digest; NULL with `error` filled. */
static unsigned char *read_stored(const nj_reader *it, const nj_part_place *part, nj_error *error)
{
    unsigned char *stored = malloc(part->stored_bytes + 1);
    if (stored == NULL) {
        nj_no_memory(error);
        return NULL;
    }
    if (!nj_file_read(&it->file, part->start, part->stored_bytes, stored, error) ||
        !check_digest((nj_span){stored, part->stored_bytes}, part->sha256, error)) {
        free(stored);
        return NULL;
    }
    return stored;
}

/* Reads, checks and decompresses a part into `raw`, which has room for it. */
static bool read_part(const nj_reader *it, const nj_part_place *part, void *raw, nj_error *error)
{
    unsigned char *stored = read_stored(it, part, error);
    bool read = stored != NULL && nj_frame_read(&it->calls, (nj_span){stored, part->stored_bytes}, raw, part->raw_bytes, error);
    free(stored);
    return read;
}

/* Computes the offset of each part, and checks that the last one ends with the file. */
static bool place_parts(nj_reader *it, nj_error *error)
{
    size_t count = it->index.kernel_count;
    uint64_t start = NJ_HEADER_BYTES + it->index_bytes;
    it->section_starts = malloc((2 * count + 1) * sizeof *it->section_starts);
    if (it->section_starts == NULL) {
        return nj_no_memory(error);
    }
    it->payload_starts = it->section_starts + count;
    for (size_t i = 0; i < count; i++) {
        it->section_starts[i] = start;
        start += it->index.kernels[i].section.stored_bytes;
    }
    it->attachments_start = start;
    for (size_t i = 0; i < it->index.attachment_count; i++) {
        start += it->index.attachments[i].section.stored_bytes;
    }
    for (size_t i = 0; i < count; i++) {
        it->payload_starts[i] = start;
        start += it->index.kernels[i].payload_bytes;
    }
    return it->file.size == start || nj_differ(error, nj_format("%llu", (unsigned long long)it->file.size).text,
                                               "expected a file of %llu bytes", (unsigned long long)start);
}

/* Reads the header into `raw`, which has NJ_HEADER_BYTES. */
static bool read_header(nj_reader *it, unsigned char *raw, nj_header *header, nj_error *error)
{
    size_t size = it->file.size < NJ_HEADER_BYTES ? (size_t)it->file.size : NJ_HEADER_BYTES;
    if (!nj_file_read(&it->file, 0, size, raw, error) || !nj_header_read((nj_span){raw, size}, header, error)) {
        return false;
    }
    it->index_bytes = header->index_bytes;
    it->index_raw_bytes = header->index_raw_bytes;
    uint64_t least = NJ_HEADER_BYTES + header->index_bytes;
    return it->file.size >= least || nj_break(error, "truncated", nj_format("%llu", (unsigned long long)it->file.size).text,
                                              "expected at least %llu bytes", (unsigned long long)least);
}

static nj_part_place place_index(const nj_reader *it, const unsigned char *sha256)
{
    return (nj_part_place){NJ_HEADER_BYTES, it->index_raw_bytes, (size_t)it->index_bytes, sha256};
}

/* Decompresses and reads the index, unless `verify` refuses its digest. */
static bool take_index(nj_reader *it, nj_span stored, nj_error *error)
{
    it->index_raw = malloc((size_t)it->index_raw_bytes + 1);
    if (it->index_raw == NULL) {
        return nj_no_memory(error);
    }
    /* outside of the place "index", since an error of `verify` is about the whole bundle */
    if (it->calls.verify != NULL && !it->calls.verify(it->calls.context, it->digest, error)) {
        return false;
    }
    return (nj_frame_read(&it->calls, stored, it->index_raw, it->index_raw_bytes, error) &&
            nj_index_read((nj_span){it->index_raw, (size_t)it->index_raw_bytes}, &it->index, error)) ||
           nj_note_place(error, "index");
}

static bool read_index(nj_reader *it, const nj_header *header, nj_error *error)
{
    nj_part_place part = place_index(it, header->sha256);
    unsigned char *stored = read_stored(it, &part, error);
    if (stored == NULL) {
        return nj_note_place(error, "index");
    }
    nj_sha256_spell(header->sha256, it->digest);
    bool read = take_index(it, (nj_span){stored, part.stored_bytes}, error);
    free(stored);
    return read;
}

static bool read_all(nj_reader *it, nj_error *error)
{
    unsigned char raw[NJ_HEADER_BYTES];
    nj_header header;
    bool read = read_header(it, raw, &header, error) && read_index(it, &header, error) && place_parts(it, error);
    if (!read) {
        nj_reader_close(it);
    }
    return read;
}

static void start(nj_reader *it, const nj_reader_calls *calls)
{
    *it = (nj_reader){.calls = *calls, .file = {.descriptor = -1}};
    pthread_mutex_init(&it->lock, NULL);
}

bool nj_reader_open(nj_reader *it, const char *path, const nj_reader_calls *calls, nj_error *error)
{
    start(it, calls);
    if (!nj_file_open(path, &it->file, error)) {
        nj_reader_close(it);
        return false;
    }
    return read_all(it, error);
}

bool nj_reader_take(nj_reader *it, nj_span memory, const nj_reader_calls *calls, nj_error *error)
{
    start(it, calls);
    it->file.memory = memory.at;
    it->file.size = memory.size;
    return read_all(it, error);
}

static void drop_group(nj_group_bytes *group)
{
    if (group != NULL && atomic_fetch_sub(&group->holders, 1) == 1) {
        free(group);
    }
}

void nj_reader_close(nj_reader *it)
{
    nj_file_close(&it->file);
    nj_index_close(&it->index);
    free(it->index_raw);
    free(it->section_starts);
    drop_group(it->last);
    pthread_mutex_destroy(&it->lock);
}

int nj_reader_find(const nj_reader *it, nj_span name)
{
    size_t low = 0, high = it->index.kernel_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = nj_span_compare(it->index.kernels[middle].name, name);
        if (order == 0) {
            return (int)middle;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return -1;
}

bool nj_reader_check_index(const nj_reader *it, nj_error *error)
{
    unsigned char sha256[NJ_SHA256_BYTES], *raw = malloc((size_t)it->index_raw_bytes + 1);
    nj_sha256_read((const unsigned char *)it->digest, sha256);
    nj_part_place part = place_index(it, sha256);
    bool read = (raw != NULL || nj_no_memory(error)) && (read_part(it, &part, raw, error) || nj_note_place(error, "index"));
    free(raw);
    return read;
}

/* Reads the part at `start`, whose sizes and digest are in the index. */
static bool read_pinned(const nj_reader *it, uint64_t start, const nj_stored_section *section, void *raw, nj_error *error)
{
    unsigned char sha256[NJ_SHA256_BYTES];
    nj_sha256_read(section->sha256.at, sha256);
    nj_part_place part = {start, section->raw_bytes, (size_t)section->stored_bytes, sha256};
    return read_part(it, &part, raw, error);
}

static bool within_kernel(const nj_reader *it, size_t kernel, nj_error *error)
{
    nj_span name = it->index.kernels[kernel].name;
    return nj_note_place(error, nj_format("kernel %.*s", (int)name.size, (const char *)name.at).text);
}

static bool read_section(const nj_reader *it, size_t kernel, nj_section_bytes *section, nj_error *error)
{
    const nj_kernel_entry *entry = &it->index.kernels[kernel];
    if (!nj_section_check(entry->section.stored_bytes, entry->section.raw_bytes, error)) {
        return false;
    }
    section->raw = malloc((size_t)entry->section.raw_bytes + 1);
    if (section->raw == NULL) {
        return nj_no_memory(error);
    }
    nj_span raw = {section->raw, (size_t)entry->section.raw_bytes};
    if (read_pinned(it, it->section_starts[kernel], &entry->section, section->raw, error) &&
        nj_section_split(raw, entry->images, entry->groups, &section->table, &section->placement, error)) {
        return true;
    }
    free(section->raw);
    section->raw = NULL;
    return false;
}

bool nj_reader_section(const nj_reader *it, size_t kernel, nj_section_bytes *section, nj_error *error)
{
    return read_section(it, kernel, section, error) || within_kernel(it, kernel, error);
}

int nj_reader_find_attachment(const nj_reader *it, nj_span name)
{
    for (size_t i = 0; i < it->index.attachment_count; i++) {
        if (nj_span_equal(it->index.attachments[i].name, name)) {
            return (int)i;
        }
    }
    return -1;
}

bool nj_reader_attachment(const nj_reader *it, size_t number, void *raw, nj_error *error)
{
    const nj_attachment_entry *entry = &it->index.attachments[number];
    uint64_t start = it->attachments_start;
    for (size_t i = 0; i < number; i++) {
        start += it->index.attachments[i].section.stored_bytes;
    }
    return read_pinned(it, start, &entry->section, raw, error) ||
           nj_note_place(error, nj_format("attachment %.*s", (int)entry->name.size, (const char *)entry->name.at).text);
}

/* Returns the cached last group with one more holder, if it has this number; else NULL. */
static nj_group_bytes *hold_last(nj_reader *it, size_t kernel, size_t number)
{
    pthread_mutex_lock(&it->lock);
    bool is = it->last != NULL && it->last->kernel == kernel && it->last->number == number;
    nj_group_bytes *group = is ? it->last : NULL;
    if (is) {
        atomic_fetch_add(&group->holders, 1);
    }
    pthread_mutex_unlock(&it->lock);
    return group;
}

/* Caches a group as the last one read, with one more holder, and drops the previous one. */
static void keep_last(nj_reader *it, nj_group_bytes *group)
{
    atomic_fetch_add(&group->holders, 1);
    pthread_mutex_lock(&it->lock);
    nj_group_bytes *before = it->last;
    it->last = group;
    pthread_mutex_unlock(&it->lock);
    drop_group(before);
}

static nj_group_bytes *read_group(nj_reader *it, size_t kernel, const nj_image_place *place, nj_error *error)
{
    nj_part_place part = {it->payload_starts[kernel] + place->stored_start, place->group.raw_bytes, place->group.stored_bytes,
                          place->group.sha256};
    nj_group_bytes *group = malloc(sizeof *group + (size_t)part.raw_bytes);
    if (group == NULL) {
        nj_no_memory(error);
        return NULL;
    }
    if (!read_part(it, &part, group->raw, error)) {
        nj_note_place(error, nj_format("group %zu", place->number).text);
        within_kernel(it, kernel, error);
        free(group);
        return NULL;
    }
    atomic_init(&group->holders, 1);
    group->kernel = kernel;
    group->number = place->number;
    keep_last(it, group);
    return group;
}

bool nj_reader_image(nj_reader *it, size_t kernel, const nj_placement *placement, size_t number, nj_image_bytes *image, nj_error *error)
{
    nj_image_place place = nj_placement_find(placement, number);
    nj_group_bytes *group = hold_last(it, kernel, place.number);
    if (group == NULL) {
        group = read_group(it, kernel, &place, error);
    }
    if (group != NULL) {
        *image = (nj_image_bytes){{group->raw + place.start, (size_t)(place.end - place.start)}, group, {0}, place.start};
        memcpy(image->group_sha256, place.group.sha256, sizeof image->group_sha256);
    }
    return group != NULL;
}

void nj_image_drop(nj_image_bytes *image)
{
    drop_group(image->group);
}
