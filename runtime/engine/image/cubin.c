#include "image/cubin.h"

#define RECORDS_MAX 262144          /* largest number of attributes in all sections; bounds the time for a hostile image */
#define SHARED_BYTES_MAX (1u << 30) /* more than any device has */
#define SYSTEM_SHARED_BYTES 1024
#define SYSTEM_SHARED_SINCE 90

/* Formats of an attribute: no value, an 8-bit value, a 16-bit value, a 16-bit length followed by that many bytes. */
enum { NVAL = 1, BVAL = 2, HVAL = 3, SVAL = 4 };
enum {
    MAX_THREADS = 0x05,
    ACCELERATOR_TARGET = 0x09, /* an attribute of .nv.compat */
    PARAM_CBANK = 0x0a,
    REQNTID = 0x10,
    FRAME_SIZE = 0x11,
    KPARAM_INFO = 0x17,
    REGCOUNT = 0x2f,
    API_VERSION = 0x37,
    CTA_PER_CLUSTER = 0x3d,
};

/* The state of reading a section of attributes. */
typedef struct {
    nj_span rest;
    size_t *quota;
    nj_error *error;
} nj_reader;

typedef struct {
    uint8_t form;
    uint8_t attribute;
    nj_span value;
} nj_record;

static bool start(const nj_section *section, nj_cubin *cubin, nj_error *error, nj_reader *reader)
{
    *reader = (nj_reader){section->content, &cubin->quota, error};
    return section->type != NJ_SHT_NOBITS || nj_break(error, "cubin-info", "a section without bytes", "expected attributes");
}

/* Reads the next attribute. Returns 1, 0 at the end, or -1 with the error filled if a rule is broken. */
static int next(nj_reader *reader, nj_record *record)
{
    nj_span *rest = &reader->rest;
    if (rest->size == 0) {
        return 0;
    }
    if (*reader->quota == 0) {
        nj_note_break(reader->error, "cubin-info", "more", "expected at most %d attributes", RECORDS_MAX);
        return -1;
    }
    *reader->quota -= 1;
    record->form = rest->at[0];
    size_t size = rest->size >= 4 && record->form == SVAL ? nj_u16(rest->at + 2) : 0;
    if (rest->size < 4 || size > rest->size - 4) {
        nj_note_break(reader->error, "cubin-info", nj_format("%zu", rest->size).text, "expected an attribute of %zu bytes", size + 4);
        return -1;
    }
    if (record->form < NVAL || record->form > SVAL) {
        nj_note_break(reader->error, "cubin-info", nj_format("%d", record->form).text, "expected an attribute of form 1 to 4");
        return -1;
    }
    record->attribute = rest->at[1];
    record->value = record->form == SVAL ? (nj_span){rest->at + 4, size} : (nj_span){rest->at + 2, 2};
    *rest = (nj_span){rest->at + 4 + size, rest->size - 4 - size};
    return 1;
}

static bool has_bytes(const nj_reader *reader, const nj_record *record, size_t size)
{
    return (record->form == SVAL && record->value.size == size) ||
           nj_break(reader->error, "cubin-info", nj_format("%zu in form %d", record->value.size, record->form).text,
                    "expected %zu bytes of attribute %#x", size, record->attribute);
}

static void note_usage(nj_cubin *cubin, const nj_record *record)
{
    uint32_t symbol = nj_u32(record->value.at), value = nj_u32(record->value.at + 4);
    /* binary search, since kernels are sorted by symbol number */
    size_t low = 0, high = cubin->kernel_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (cubin->kernels[middle].number < symbol) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < cubin->kernel_count && cubin->kernels[low].number == symbol) {
        (record->attribute == REGCOUNT ? cubin->registers : cubin->stack_bytes)[low] = value;
    }
}

/* Reads the registers and the stack size of all kernels. */
static bool read_usage(nj_cubin *cubin, nj_error *error)
{
    const nj_section *section = nj_elf_find(&cubin->elf, ".nv.info", (nj_span){cubin->elf.image.at, 0});
    nj_reader reader;
    nj_record record;
    if (section == NULL) {
        return true;
    }
    int status = start(section, cubin, error, &reader) ? 1 : -1;
    while (status > 0 && (status = next(&reader, &record)) > 0) {
        if (record.attribute != REGCOUNT && record.attribute != FRAME_SIZE) {
            continue;
        }
        if (!has_bytes(&reader, &record, 8)) {
            return false;
        }
        note_usage(cubin, &record);
    }
    return status == 0;
}

/* Reads the arch of the image. */
static bool read_arch(nj_cubin *cubin, nj_error *error)
{
    const nj_elf *elf = &cubin->elf;
    cubin->sm = (elf->abi < 8 ? elf->flags : elf->flags >> 8) & 0xff;
    cubin->arch_specific = (elf->flags & (elf->abi < 8 ? 0x800 : 0x8)) != 0;
    const nj_section *section = nj_elf_find(elf, ".nv.compat", (nj_span){elf->image.at, 0});
    nj_reader reader;
    nj_record record;
    /* since CUDA 13.0, .nv.compat says whether an image is arch-specific; e_flags do not */
    if (elf->abi < 8 || cubin->arch_specific || section == NULL) {
        return true;
    }
    int status = start(section, cubin, error, &reader) ? 1 : -1;
    while (status > 0 && (status = next(&reader, &record)) > 0) {
        if (record.form == BVAL && record.attribute == ACCELERATOR_TARGET && record.value.at[0] == 1) {
            cubin->arch_specific = true;
        }
    }
    return status == 0;
}

bool nj_cubin_read(nj_span image, nj_cubin *cubin, nj_error *error)
{
    cubin->quota = RECORDS_MAX;
    cubin->toolkit = 0;
    int count = nj_elf_read(image, &nj_elf_cubin, &cubin->elf, error) ? nj_elf_kernels(&cubin->elf, cubin->kernels, error) : -1;
    if (count < 0) {
        return false;
    }
    cubin->kernel_count = (size_t)count;
    memset(cubin->registers, 0, sizeof cubin->registers);
    memset(cubin->stack_bytes, 0, sizeof cubin->stack_bytes);
    return read_usage(cubin, error) && read_arch(cubin, error);
}

/* The state of reading the attributes of a kernel. */
typedef struct {
    nj_reader reader;
    nj_span symbol;
    size_t param_end; /* the greatest ordinal of a param plus one */
    uint32_t bank_bytes;
} nj_attributes;

static bool read_param(nj_attributes *it, const nj_record *record, nj_image_kernel *kernel)
{
    if (!has_bytes(&it->reader, record, 12)) {
        return false;
    }
    const unsigned char *value = record->value.at;
    size_t ordinal = nj_u16(value + 4);
    nj_image_param param = {.offset = nj_u16(value + 6), .size = (uint16_t)(nj_u32(value + 8) >> 18)};
    if (ordinal >= NJ_IMAGE_PARAMS_MAX) {
        return nj_break(it->reader.error, "cubin-params", nj_format("param %zu", ordinal).text, "expected at most %d params of %s", NJ_IMAGE_PARAMS_MAX, nj_quote(it->symbol).text);
    }
    if (param.size == 0) {
        return nj_break(it->reader.error, "cubin-params", "0 bytes", "expected a size of param %zu of %s", ordinal, nj_quote(it->symbol).text);
    }
    if (kernel->params[ordinal].size != 0) {
        return nj_break(it->reader.error, "cubin-params", "two", "expected param %zu of %s once", ordinal, nj_quote(it->symbol).text);
    }
    kernel->params[ordinal] = param;
    kernel->param_count++;
    it->param_end = ordinal >= it->param_end ? ordinal + 1 : it->param_end;
    return true;
}

static bool read_triple(nj_attributes *it, const nj_record *record, nj_declared *declared)
{
    if (!has_bytes(&it->reader, record, 12)) {
        return false;
    }
    declared->declared = true;
    for (size_t i = 0; i < 3; i++) {
        declared->xyz[i] = nj_u32(record->value.at + 4 * i);
    }
    return true;
}

static bool read_attribute(nj_attributes *it, const nj_record *record, nj_cubin *cubin, nj_image_kernel *kernel)
{
    switch (record->attribute) {
    case KPARAM_INFO: return read_param(it, record, kernel);
    case MAX_THREADS: return read_triple(it, record, &kernel->largest_block);
    case REQNTID: return read_triple(it, record, &kernel->block);
    case CTA_PER_CLUSTER: return read_triple(it, record, &kernel->cluster);
    case PARAM_CBANK:
        if (!has_bytes(&it->reader, record, 8)) {
            return false;
        }
        kernel->param_base = nj_u16(record->value.at + 4);
        it->bank_bytes = nj_u16(record->value.at + 6);
        return true;
    case API_VERSION:
        if (record->form == SVAL && record->value.size == 4 && nj_u32(record->value.at) > cubin->toolkit) {
            cubin->toolkit = nj_u32(record->value.at);
        }
        return true;
    default: return true;
    }
}

/* Checks that every ordinal has a param, that params do not overlap and are in order, and that they fill the constant bank's part. */
static bool check_params(const nj_attributes *it, const nj_image_kernel *kernel)
{
    uint32_t end = 0;
    if (it->param_end != kernel->param_count) {
        return nj_break(it->reader.error, "cubin-params", nj_format("param %zu", it->param_end - 1).text,
                        "expected params 0 to %zu of %s", kernel->param_count - 1, nj_quote(it->symbol).text);
    }
    for (size_t i = 0; i < kernel->param_count; i++) {
        nj_image_param param = kernel->params[i];
        if (param.offset < end) {
            return nj_break(it->reader.error, "cubin-params", nj_format("%d bytes at %d", param.size, param.offset).text,
                            "expected params of %s one after the other", nj_quote(it->symbol).text);
        }
        end = (uint32_t)param.offset + param.size;
    }
    return end == it->bank_bytes || nj_break(it->reader.error, "cubin-params", nj_format("%u", end).text,
                                             "expected %u bytes of params of %s", it->bank_bytes, nj_quote(it->symbol).text);
}

bool nj_cubin_kernel_read(nj_cubin *cubin, size_t number, nj_image_kernel *kernel, nj_error *error)
{
    const nj_symbol *symbol = &cubin->kernels[number];
    const nj_section *info = nj_elf_find(&cubin->elf, ".nv.info.", symbol->name);
    const nj_section *shared = nj_elf_find(&cubin->elf, ".nv.shared.", symbol->name);
    nj_attributes it = {.symbol = symbol->name};
    nj_record record;
    *kernel = (nj_image_kernel){
        .symbol = symbol->name,
        .registers = cubin->registers[number],
        .stack_bytes = cubin->stack_bytes[number],
        .static_shared_bytes = shared == NULL ? 0 : shared->size,
        .text_bytes = cubin->elf.sections[symbol->section].size,
    };
    if (info == NULL || info->info != symbol->section) {
        return nj_break(error, "cubin-info", info == NULL ? "none" : "another's", "expected attributes of %s", nj_quote(it.symbol).text);
    }
    int status = start(info, cubin, error, &it.reader) ? 1 : -1;
    while (status > 0 && (status = next(&it.reader, &record)) > 0) {
        status = read_attribute(&it, &record, cubin, kernel) ? 1 : -1;
    }
    return status == 0 && check_params(&it, kernel);
}

uint32_t nj_cubin_own_shared(const nj_cubin *cubin, const nj_image_kernel *kernel)
{
    uint64_t system = cubin->sm >= SYSTEM_SHARED_SINCE ? SYSTEM_SHARED_BYTES : 0;
    uint64_t own = kernel->static_shared_bytes > system ? kernel->static_shared_bytes - system : 0;
    return own > SHARED_BYTES_MAX ? SHARED_BYTES_MAX : (uint32_t)own;
}

bool nj_cubin_has_debug(const nj_cubin *cubin)
{
    for (size_t i = 0; i < cubin->elf.section_count; i++) {
        nj_span name = cubin->elf.sections[i].name;
        bool is_debug = (name.size >= 7 && memcmp(name.at, ".debug_", 7) == 0) ||
                        (name.size >= 9 && memcmp(name.at, ".nv_debug", 9) == 0);
        /* every image has .debug_frame, which holds no paths */
        if (is_debug && !nj_span_is(name, ".debug_frame")) {
            return true;
        }
    }
    return false;
}
