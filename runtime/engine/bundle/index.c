#include "bundle/index.h"

#include "base/arch.h"

#include <stdlib.h>

enum { WARP_THREADS_MAX = 64 };

#define COUNT(fields) (sizeof fields / sizeof *fields)

/* Returns the kernel entry that is being read, the last one. */
static nj_kernel_entry *last_kernel(nj_index *index)
{
    return &index->kernels[index->kernel_count - 1];
}

static nj_attachment_entry *last_attachment(nj_index *index)
{
    return &index->attachments[index->attachment_count - 1];
}

/* A section entry that is being read, and the largest size that it may declare, stored or raw. */
typedef struct {
    nj_stored_section *section;
    uint64_t most_bytes;
} nj_section_taking;

static bool take_stored_bytes(nj_document *it, void *into)
{
    nj_section_taking *taking = into;
    return nj_take_count(it, 0, taking->most_bytes, &taking->section->stored_bytes);
}

static bool take_raw_bytes(nj_document *it, void *into)
{
    nj_section_taking *taking = into;
    return nj_take_count(it, 0, taking->most_bytes, &taking->section->raw_bytes);
}

static bool take_sha256(nj_document *it, void *into)
{
    nj_section_taking *taking = into;
    return nj_take_digest(it, &taking->section->sha256);
}

static const nj_field section_fields[] = {
    {"raw_bytes", take_raw_bytes},
    {"sha256", take_sha256},
    {"stored_bytes", take_stored_bytes},
};

static bool take_section(nj_document *it, uint64_t most_bytes, nj_stored_section *section)
{
    nj_section_taking taking = {section, most_bytes};
    return nj_take_object(it, section_fields, COUNT(section_fields), &taking);
}

static bool take_table(nj_document *it, void *index)
{
    return take_section(it, NJ_SECTION_BYTES_MAX, &last_kernel(index)->section);
}

static bool take_groups(nj_document *it, void *index)
{
    return nj_take_count(it, 0, NJ_VARIANTS_MAX, &last_kernel(index)->groups);
}

static bool take_images(nj_document *it, void *index)
{
    return nj_take_count(it, 0, NJ_VARIANTS_MAX, &last_kernel(index)->images);
}

static bool take_variants(nj_document *it, void *index)
{
    return nj_take_count(it, 0, NJ_VARIANTS_MAX, &last_kernel(index)->variants);
}

static bool take_payload_bytes(nj_document *it, void *index)
{
    return nj_take_count(it, 0, NJ_PAYLOAD_BYTES_MAX, &last_kernel(index)->payload_bytes);
}

static bool take_kernel_name(nj_document *it, void *into)
{
    nj_index *index = into;
    nj_kernel_entry *kernel = last_kernel(index);
    if (!nj_take_name(it, &kernel->name)) {
        return false;
    }
    bool ascends = index->kernel_count == 1 || nj_span_compare(kernel[-1].name, kernel->name) < 0;
    return ascends || nj_break(it->error, "order", nj_quote(kernel->name).text,
                               "expected kernels sorted by name, each once");
}

static const nj_field kernel_fields[] = {
    {"groups", take_groups},
    {"images", take_images},
    {"name", take_kernel_name},
    {"payload_bytes", take_payload_bytes},
    {"table", take_table},
    {"variants", take_variants},
};

static bool take_kernel(nj_document *it, void *into)
{
    nj_index *index = into;
    if (index->kernel_count == index->kernel_room) {
        size_t room = index->kernel_room == 0 ? 16 : 2 * index->kernel_room;
        nj_kernel_entry *kernels = realloc(index->kernels, room * sizeof *kernels);
        if (kernels == NULL) {
            return nj_no_memory(it->error);
        }
        index->kernels = kernels;
        index->kernel_room = room;
    }
    index->kernels[index->kernel_count++] = (nj_kernel_entry){0};
    return nj_take_object(it, kernel_fields, COUNT(kernel_fields), index);
}

static bool take_kernels(nj_document *it, void *index)
{
    return nj_take_array(it, NJ_KERNELS_MAX, take_kernel, index);
}

static bool take_attachment_name(nj_document *it, void *into)
{
    nj_index *index = into;
    nj_attachment_entry *attachment = last_attachment(index);
    if (!nj_take_name(it, &attachment->name)) {
        return false;
    }
    bool ascends = index->attachment_count == 1 || nj_span_compare(attachment[-1].name, attachment->name) < 0;
    return ascends || nj_break(it->error, "order", nj_quote(attachment->name).text,
                               "expected attachments sorted by name, each once");
}

static bool take_attachment_section(nj_document *it, void *index)
{
    nj_stored_section *section = &last_attachment(index)->section;
    if (!take_section(it, NJ_ATTACHMENT_BYTES_MAX, section)) {
        return false;
    }
    uint64_t most = NJ_FREE_BYTES + NJ_ATTACHMENT_RATIO_MAX * section->stored_bytes;
    return section->raw_bytes <= most ||
           nj_break(it->error, "size", nj_format("%llu", (unsigned long long)section->raw_bytes).text,
                    "expected an attachment that decompresses to at most %llu bytes, %d times what is stored", (unsigned long long)most,
                    NJ_ATTACHMENT_RATIO_MAX);
}

static const nj_field attachment_fields[] = {
    {"name", take_attachment_name},
    {"section", take_attachment_section},
};

static bool take_attachment(nj_document *it, void *into)
{
    nj_index *index = into;
    if (index->attachments == NULL) {
        index->attachments = malloc(NJ_ATTACHMENTS_MAX * sizeof *index->attachments);
        if (index->attachments == NULL) {
            return nj_no_memory(it->error);
        }
    }
    index->attachments[index->attachment_count++] = (nj_attachment_entry){0};
    return nj_take_object(it, attachment_fields, COUNT(attachment_fields), index);
}

static bool take_attachments(nj_document *it, void *index)
{
    return nj_take_array(it, NJ_ATTACHMENTS_MAX, take_attachment, index);
}

static bool take_arch(nj_document *it, void *into)
{
    nj_index *index = into;
    nj_image_arch arch;
    return nj_take_name(it, &index->arch) &&
           ((nj_image_arch_take(index->arch, &arch) && arch.suffix == 0) ||
            nj_break(it->error, "target", nj_quote(index->arch).text, "expected an arch such as sm_90 or gfx942"));
}

static bool take_backend(nj_document *it, void *into)
{
    nj_index *index = into;
    if (!nj_take_name(it, &index->backend)) {
        return false;
    }
    const char *wanted = nj_is_gfx(nj_image_arch_read(index->arch).number) ? "hip" : "cuda";
    return nj_span_is(index->backend, wanted) ||
           nj_break(it->error, "target", nj_quote(index->backend).text, "expected backend %s of %.*s", wanted, (int)index->arch.size,
                    (const char *)index->arch.at);
}

static bool take_image_arch(nj_document *it, void *into)
{
    nj_index *index = into;
    nj_span *image = &index->image_arch;
    nj_image_arch arch;
    if (!nj_take_name(it, image)) {
        return false;
    }
    if (!nj_image_arch_take(*image, &arch)) {
        return nj_break(it->error, "target", nj_quote(*image).text, "expected an image arch such as sm_90a or gfx942");
    }
    nj_text got = nj_format("%.*s and %.*s", (int)index->arch.size, (const char *)index->arch.at, (int)image->size, (const char *)image->at);
    return nj_span_equal((nj_span){image->at, image->size - (arch.suffix != 0)}, index->arch) ||
           nj_break(it->error, "target", got.text, "expected arch and image_arch to name the same chip");
}

static bool take_warp_size(nj_document *it, void *into)
{
    nj_index *index = into;
    unsigned int threads = nj_warp_threads(nj_image_arch_read(index->arch).number);
    return nj_take_count(it, 0, WARP_THREADS_MAX, &index->warp_size) &&
           (index->warp_size == threads || nj_break(it->error, "target", nj_format("%u", (unsigned)index->warp_size).text,
                                                    "expected warps of %u threads", threads));
}

static const nj_field target_fields[] = {
    {"arch", take_arch},
    {"backend", take_backend},
    {"image_arch", take_image_arch},
    {"warp_size", take_warp_size},
};

static bool take_target(nj_document *it, void *index)
{
    return nj_take_object(it, target_fields, COUNT(target_fields), index);
}

/* An array of two texts that is being read. */
typedef struct {
    nj_span texts[2];
    size_t count;
} nj_pair;

static bool take_half(nj_document *it, void *into)
{
    nj_pair *pair = into;
    return nj_take_line(it, &pair->texts[pair->count++]);
}

static bool take_tool(nj_document *it, void *into)
{
    nj_index *index = into;
    nj_pair pair = {0};
    if (!nj_take_array(it, 2, take_half, &pair)) {
        return false;
    }
    if (pair.count != 2) {
        return nj_break(it->error, "size", nj_format("%zu", pair.count).text, "expected a tool's name and version");
    }
    size_t number = index->tool_count++;
    index->tools[number] = (nj_tool){pair.texts[0], pair.texts[1]};
    bool ascends = number == 0 || nj_span_compare(index->tools[number - 1].name, pair.texts[0]) < 0;
    return ascends || nj_break(it->error, "order", nj_quote(pair.texts[0]).text,
                               "expected tools sorted by name, each once");
}

static bool take_toolchain(nj_document *it, void *index)
{
    return nj_take_array(it, NJ_TOOLS_MAX, take_tool, index);
}

static bool take_inputs(nj_document *it, void *into)
{
    nj_index *index = into;
    return nj_take_digest(it, &index->inputs);
}

static bool take_min_driver(nj_document *it, void *into)
{
    nj_index *index = into;
    return nj_take_count(it, 0, NJ_DRIVER_MAX, &index->min_driver);
}

static bool take_name(nj_document *it, void *into)
{
    nj_index *index = into;
    return nj_take_name(it, &index->name);
}

static bool take_version(nj_document *it, void *into)
{
    nj_index *index = into;
    return nj_take_line(it, &index->version);
}

static const nj_field index_fields[] = {
    {"attachments", take_attachments}, {"inputs", take_inputs}, {"kernels", take_kernels}, {"min_driver", take_min_driver},
    {"name", take_name},               {"target", take_target}, {"toolchain", take_toolchain}, {"version", take_version},
};

static bool take_index(nj_document *it, void *index)
{
    return nj_take_object(it, index_fields, COUNT(index_fields), index);
}

bool nj_index_read(nj_span raw, nj_index *index, nj_error *error)
{
    *index = (nj_index){0};
    return nj_document_take(&index->document, raw, take_index, index, error);
}

void nj_index_close(nj_index *index)
{
    nj_document_close(&index->document);
    free(index->kernels);
    free(index->attachments);
    index->kernels = NULL;
    index->attachments = NULL;
}
