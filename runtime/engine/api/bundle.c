/* for clock_gettime */
#define _POSIX_C_SOURCE 200809L

#include "api/bundle.h"

#include "api/kernel.h"
#include "base/texts.h"
#include "bundle/zstd.h"
#include "driver/query.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

uint64_t nj_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void nj_bundle_tell(const nj_bundle *bundle, nj_event event, uint64_t began_ns)
{
    if (bundle->options.log == NULL) {
        return;
    }
    event.size = sizeof event;
    event.path = bundle->path;
    event.digest = bundle->reader.digest;
    event.nanoseconds = nj_now_ns() - began_ns;
    bundle->options.log(bundle->options.user, &event);
}

bool nj_within_bundle(const nj_bundle *bundle, nj_error *error)
{
    return bundle->path == NULL ? false : nj_note_place(error, bundle->path);
}

/* -- nj_options -- */

static bool decompress(void *context, nj_span frame, void *raw, size_t raw_bytes, nj_error *error)
{
    const nj_bundle *it = context;
    return it->options.decompress(it->options.user, frame.at, frame.size, raw, raw_bytes) == 0 ||
           nj_frame_broken(error, "a refusal of nj_options.decompress");
}

static bool take_options(nj_bundle *it, const nj_options *options, nj_error *error)
{
    static const nj_sized sized = {"nj_options", sizeof(nj_options), NJ_END_OF(nj_options, log), -1};
    if (options != NULL && !nj_sized_take(&sized, options, &it->options, error)) {
        return false;
    }
    return (it->options.allocate == NULL) == (it->options.release == NULL) ||
           nj_refuse_argument(error, -1, "one of them", "expected nj_options.allocate and release both, or neither");
}

/* -- texts -- */

static size_t count_chars(const nj_index *index)
{
    size_t chars = index->name.size + index->version.size + index->arch.size + index->image_arch.size + 4;
    for (size_t i = 0; i < index->kernel_count; i++) {
        chars += index->kernels[i].name.size + 1;
    }
    for (size_t i = 0; i < index->attachment_count; i++) {
        chars += index->attachments[i].name.size + 1;
    }
    return chars;
}

static bool copy_texts(nj_bundle *it, nj_error *error)
{
    const nj_index *index = &it->reader.index;
    char *at = it->texts = malloc(count_chars(index));
    it->kernel_names = malloc((index->kernel_count + 1) * sizeof *it->kernel_names);
    it->attachment_names = malloc((index->attachment_count + 1) * sizeof *it->attachment_names);
    it->kernels = calloc(index->kernel_count + 1, sizeof *it->kernels);
    it->attachments = calloc(index->attachment_count + 1, sizeof *it->attachments);
    if (it->texts == NULL || it->kernel_names == NULL || it->attachment_names == NULL || it->kernels == NULL || it->attachments == NULL) {
        return nj_no_memory(error);
    }
    it->name = nj_text_put(&at, index->name);
    it->version = nj_text_put(&at, index->version);
    it->arch_name = nj_text_put(&at, index->arch);
    it->image_arch_name = nj_text_put(&at, index->image_arch);
    for (size_t i = 0; i < index->kernel_count; i++) {
        it->kernel_names[i] = nj_text_put(&at, index->kernels[i].name);
    }
    for (size_t i = 0; i < index->attachment_count; i++) {
        it->attachment_names[i] = nj_text_put(&at, index->attachments[i].name);
    }
    it->image_arch = nj_image_arch_read(index->image_arch);
    it->arch = nj_image_arch_read(index->arch).number;
    return true;
}

/* -- open and close -- */

static bool open_reader(nj_bundle *it, nj_span memory, nj_error *error)
{
    nj_reader_calls calls = {it, it->options.decompress == NULL ? nj_zstd_decompress : decompress, nj_bundle_verify};
    return it->path != NULL ? nj_reader_open(&it->reader, it->path, &calls, error) : nj_reader_take(&it->reader, memory, &calls, error);
}

static void drop_bundle(nj_bundle *it)
{
    free(it->path);
    free(it->texts);
    free(it->kernel_names);
    free(it->attachment_names);
    free(it->kernels);
    free(it->attachments);
    free(it);
}

static nj_bundle *open_bundle(const char *path, nj_span memory, const nj_options *options, nj_error *error)
{
    uint64_t began_ns = nj_now_ns();
    nj_bundle *it = calloc(1, sizeof *it);
    if (it == NULL) {
        nj_no_memory(error);
        return NULL;
    }
    it->path = path == NULL ? NULL : malloc(strlen(path) + 1);
    if (it->path != NULL) {
        strcpy(it->path, path);
    }
    bool ready = (path == NULL || it->path != NULL || nj_no_memory(error)) && take_options(it, options, error);
    bool open = ready && open_reader(it, memory, error);
    if (open && copy_texts(it, error)) {
        nj_bundle_tell(it, (nj_event){.kind = NJ_EVENT_OPEN, .device = -1}, began_ns);
        return it;
    }
    if (open) {
        nj_reader_close(&it->reader);
    }
    if (ready) {
        nj_within_bundle(it, error);
    }
    drop_bundle(it);
    return NULL;
}

nj_bundle *nj_bundle_open(const char *path, const nj_options *options, nj_error *error)
{
    return open_bundle(path, (nj_span){0}, options, error);
}

nj_bundle *nj_bundle_open_memory(const void *bytes, size_t size, const nj_options *options, nj_error *error)
{
    return open_bundle(NULL, (nj_span){bytes, size}, options, error);
}

void nj_bundle_close(nj_bundle *it)
{
    if (it == NULL) {
        return;
    }
    for (size_t i = 0; i < it->reader.index.kernel_count; i++) {
        nj_kernel_close(atomic_load(&it->kernels[i]));
    }
    for (size_t i = 0; i < it->reader.index.attachment_count; i++) {
        free(atomic_load(&it->attachments[i]));
    }
    nj_reader_close(&it->reader);
    drop_bundle(it);
}

/* -- attachments -- */

/* Fills the error of an unknown attachment; it lists the known ones. Returns -1. */
static int refuse_attachment(const nj_bundle *it, nj_span name, nj_error *error)
{
    const nj_index *index = &it->reader.index;
    nj_text known = {""};
    for (size_t i = 0; i < index->attachment_count; i++) {
        nj_span next = index->attachments[i].name;
        known = nj_format("%s%s%.*s", known.text, i == 0 ? "" : ", ", (int)next.size, (const char *)next.at);
    }
    nj_text got = nj_format("%s", nj_quote(name).text);
    nj_note_argument(error, -1, got.text, "expected one of %zu attachments%s%s", index->attachment_count,
                     index->attachment_count == 0 ? "" : ": ", known.text);
    nj_within_bundle(it, error);
    return -1;
}

/* Returns the bytes of an attachment in new memory; NULL with `error` filled. */
static void *read_attachment(const nj_bundle *it, size_t number, nj_error *error)
{
    void *content = malloc((size_t)it->reader.index.attachments[number].section.raw_bytes + 1);
    if (content == NULL) {
        nj_no_memory(error);
    } else if (!nj_reader_attachment(&it->reader, number, content, error)) {
        free(content);
        content = NULL;
        nj_within_bundle(it, error);
    }
    return content;
}

const void *nj_bundle_attachment(nj_bundle *it, const char *name, size_t *size, nj_error *error)
{
    nj_span wanted = {(const unsigned char *)name, strlen(name)};
    int number = nj_reader_find_attachment(&it->reader, wanted);
    number = number < 0 ? refuse_attachment(it, wanted, error) : number;
    if (number < 0) {
        return NULL;
    }
    void *known = atomic_load_explicit(&it->attachments[number], memory_order_acquire);
    void *made = known != NULL ? NULL : read_attachment(it, (size_t)number, error);
    if (made != NULL && !atomic_compare_exchange_strong(&it->attachments[number], &known, made)) {
        free(made); /* another thread added its own first */
        made = known;
    }
    const void *found = known != NULL ? known : made;
    if (found != NULL) {
        *size = (size_t)it->reader.index.attachments[number].section.raw_bytes;
    }
    return found;
}

/* -- queries -- */

nj_code nj_bundle_about(const nj_bundle *it, nj_bundle_info *info, nj_error *error)
{
    static const nj_sized sized = {"nj_bundle_info", sizeof *info, NJ_END_OF(nj_bundle_info, attachment_count), -1};
    const nj_index *index = &it->reader.index;
    nj_bundle_info all = {sizeof all, it->name, it->version, it->arch_name, it->image_arch_name, it->reader.digest,
                          (int)index->min_driver, index->kernel_count, index->attachment_count};
    return nj_sized_fill(&sized, info, &all, error);
}

const char *nj_bundle_kernel_name(const nj_bundle *it, size_t number)
{
    return number < it->reader.index.kernel_count ? it->kernel_names[number] : NULL;
}

const char *nj_bundle_attachment_name(const nj_bundle *it, size_t number)
{
    return number < it->reader.index.attachment_count ? it->attachment_names[number] : NULL;
}

nj_code nj_bundle_fit(const nj_bundle *it, int device, int *fit, nj_error *error)
{
    int capability;
    nj_error own;
    error = error == NULL ? &own : error;
    if (!nj_device_find(device, &device, error) || !nj_device_capability(device, &capability, error)) {
        return error->code;
    }
    *fit = nj_image_fit(it->image_arch, capability);
    return NJ_OK;
}
