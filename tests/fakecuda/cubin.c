/* A small ELF and .nv.info reader. It trusts its input as the driver does: the runtime has to check before it calls. */
#include "cubin.h"

#include <stdlib.h>
#include <string.h>

enum {
    EM_CUDA = 190,
    EM_AMDGPU = 224,
    GFX_FIRST = 900,
    INFO_REQNTID = 0x10,
    INFO_KPARAM = 0x17,
    INFO_CTA_PER_CLUSTER = 0x3d,
    INFO_FORMAT_SIZED = 4,
    COMPAT_ACCELERATOR_TARGET = 0x09,
    SECTION_BYTES = 64,
    SYSTEM_SHARED_BYTES = 1024,
};

struct section {
    const char *name;
    const unsigned char *data;
    size_t size;
};

struct reader {
    const unsigned char *image;
    unsigned count;
    const unsigned char *headers;
    const char *names;
};

static uint16_t u16(const unsigned char *at) {
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static struct section section_at(const struct reader *reader, unsigned index) {
    const unsigned char *header = reader->headers + (size_t)index * SECTION_BYTES;
    return (struct section){reader->names + u32(header), reader->image + u64(header + 24), u64(header + 32)};
}

static struct cubin_kernel *find_kernel(struct cubin *out, const char *symbol) {
    for (unsigned i = 0; i < out->kernels; i++)
        if (strcmp(out->kernel[i].symbol, symbol) == 0)
            return &out->kernel[i];
    return NULL;
}

static struct cubin_kernel *add_kernel(struct cubin *out, const char *symbol) {
    if (out->kernels == CUBIN_KERNELS_MAX || strlen(symbol) >= CUBIN_SYMBOL_MAX)
        return NULL;
    struct cubin_kernel *kernel = &out->kernel[out->kernels++];
    strcpy(kernel->symbol, symbol);
    return kernel;
}

static void read_param(struct cubin_kernel *kernel, const unsigned char *record) {
    unsigned ordinal = u16(record + 4);
    if (ordinal >= CUBIN_PARAMS_MAX)
        return;
    kernel->offsets[ordinal] = u16(record + 6);
    kernel->sizes[ordinal] = (uint16_t)(u32(record + 8) >> 18);
    if (ordinal >= kernel->params)
        kernel->params = ordinal + 1;
}

static void read_triple(uint32_t out[3], const unsigned char *record) {
    for (int i = 0; i < 3; i++)
        out[i] = u32(record + 4 * i);
}

/* Walk the records of an info section; each is (format, attribute, value or length[, payload]). */
static void read_info(struct cubin_kernel *kernel, struct section section) {
    for (size_t at = 0; at + 4 <= section.size;) {
        unsigned format = section.data[at], attribute = section.data[at + 1], value = u16(section.data + at + 2);
        const unsigned char *payload = section.data + at + 4;
        at += 4;
        if (format != INFO_FORMAT_SIZED)
            continue;
        if (attribute == INFO_KPARAM)
            read_param(kernel, payload);
        else if (attribute == INFO_REQNTID)
            read_triple(kernel->reqntid, payload);
        else if (attribute == INFO_CTA_PER_CLUSTER)
            read_triple(kernel->cluster, payload);
        at += value;
    }
}

static void read_compat(struct cubin *out, struct section section) {
    for (size_t at = 0; at + 4 <= section.size;) {
        unsigned format = section.data[at], attribute = section.data[at + 1];
        if (attribute == COMPAT_ACCELERATOR_TARGET && format != INFO_FORMAT_SIZED)
            out->suffix = section.data[at + 2] ? 'a' : 0;
        at += 4 + (format == INFO_FORMAT_SIZED ? u16(section.data + at + 2) : 0);
    }
}

static int read_target(const unsigned char *image, struct cubin *out) {
    uint32_t flags = u32(image + 48);
    if (image[8] == 7) {
        out->sm = flags & 0xff;
        out->suffix = flags & (1u << 11) ? 'a' : 0;
    } else if (image[8] == 8) {
        out->sm = (flags >> 8) & 0xff;
        out->suffix = flags & 8 ? 'a' : 0;
    }
    return out->sm != 0;
}

static uint32_t own_shared(unsigned sm, uint64_t section_bytes) {
    uint64_t system = sm >= 90 ? SYSTEM_SHARED_BYTES : 0;
    return (uint32_t)(section_bytes > system ? section_bytes - system : 0);
}

int cubin_read(const void *bytes, struct cubin *out) {
    static const unsigned char magic[7] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    const unsigned char *image = bytes;
    memset(out, 0, sizeof *out);
    if (memcmp(image, magic, sizeof magic) == 0 && u16(image + 18) == EM_AMDGPU)
        return hsaco_read(image, out);
    if (memcmp(image, magic, sizeof magic) != 0 || u16(image + 18) != EM_CUDA || !read_target(image, out))
        return 0;
    struct reader reader = {.image = image, .count = u16(image + 60), .headers = image + u64(image + 40)};
    if (u16(image + 58) != SECTION_BYTES || u16(image + 62) >= reader.count)
        return 0;
    reader.names = (const char *)image + u64(reader.headers + (size_t)u16(image + 62) * SECTION_BYTES + 24);
    for (unsigned i = 1; i < reader.count; i++) {
        struct section section = section_at(&reader, i);
        if (strncmp(section.name, ".text.", 6) == 0 && !add_kernel(out, section.name + 6))
            return 0;
        if (strcmp(section.name, ".nv.compat") == 0)
            read_compat(out, section);
    }
    for (unsigned i = 1; i < reader.count; i++) {
        struct section section = section_at(&reader, i);
        struct cubin_kernel *kernel;
        if (strncmp(section.name, ".nv.info.", 9) == 0 && (kernel = find_kernel(out, section.name + 9)))
            read_info(kernel, section);
        if (strncmp(section.name, ".nv.shared.", 11) == 0 && (kernel = find_kernel(out, section.name + 11)))
            kernel->static_shared = own_shared(out->sm, section.size);
    }
    return out->kernels != 0;
}

/* as nojit.runtime.target says it; the chips that share no images with others of their major version */
static int is_alone(unsigned sm) {
    return sm == 53 || sm == 62 || sm == 72 || sm == 87 || sm == 88 || sm == 101 || sm == 110;
}

int cubin_runs_on(const struct cubin *cubin, unsigned device) {
    if (cubin->suffix == 'a' || cubin->sm >= GFX_FIRST || device >= GFX_FIRST || is_alone(cubin->sm) || is_alone(device))
        return device == cubin->sm;
    return device / 10 == cubin->sm / 10 && device >= cubin->sm;
}
