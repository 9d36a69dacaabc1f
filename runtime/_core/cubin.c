#include "cubin.h"

#include "cold.h"

#define RECORDS_MAX 262144 /* of all sections */
#define SHARED_BYTES_MAX (1u << 30) /* more than any device has */
#define SYSTEM_SHARED_BYTES 1024 /* from sm_90 up these can be in the section of a kernel's static shared memory too */

/* The names are those of cubin.py. */
enum { NVAL = 1, BVAL = 2, HVAL = 3, SVAL = 4 };
enum {
    MAX_THREADS = 0x05,
    ACCELERATOR_TARGET = 0x09, /* of .nv.compat */
    PARAM_CBANK = 0x0a,
    REQNTID = 0x10,
    FRAME_SIZE = 0x11,
    KPARAM_INFO = 0x17,
    REGCOUNT = 0x2f,
    CTA_PER_CLUSTER = 0x3d,
};

/* Attributes that are left to read: a section's, and of all sections. */
typedef struct {
    nj_span rest;
    size_t *quota;
} nj_reader;

typedef struct {
    uint8_t form;
    uint8_t attribute;
    nj_span value;
} nj_record;

/* Starts to read a section; false of a section without bytes. */
static bool start(const nj_section *section, size_t *quota, nj_reader *reader)
{
    reader->rest = section->content;
    reader->quota = quota;
    return section->type != NJ_SHT_NOBITS;
}

/* Reads the next attribute: 1, 0 at the end, -1 where a rule is broken. */
static int next(nj_reader *reader, nj_record *record)
{
    nj_span *rest = &reader->rest;
    if (rest->size == 0) {
        return 0;
    }
    if (rest->size < 4 || *reader->quota == 0) {
        return -1;
    }
    *reader->quota -= 1;
    record->form = rest->at[0];
    record->attribute = rest->at[1];
    size_t size = record->form == SVAL ? nj_u16(rest->at + 2) : 0;
    if (record->form < NVAL || record->form > SVAL || size > rest->size - 4) {
        return -1;
    }
    record->value = record->form == SVAL ? (nj_span){rest->at + 4, size} : (nj_span){rest->at + 2, 2};
    *rest = (nj_span){rest->at + 4 + size, rest->size - 4 - size};
    return 1;
}

static bool has_bytes(const nj_record *record, size_t size)
{
    return record->form == SVAL && record->value.size == size;
}

/* Checks what `.nv.info` says of registers and stacks, as far as that can be wrong, and reads the registers of a kernel. */
static bool read_usage(const nj_elf *elf, uint32_t symbol, size_t *quota, uint32_t *registers)
{
    const nj_section *section = nj_elf_find(elf, ".nv.info", (nj_span){elf->image.at, 0});
    nj_reader reader;
    nj_record record;
    if (section == NULL) {
        return true;
    }
    int status = start(section, quota, &reader) ? 1 : -1;
    while (status > 0 && (status = next(&reader, &record)) > 0) {
        bool is_usage = record.attribute == REGCOUNT || record.attribute == FRAME_SIZE;
        status = is_usage && !has_bytes(&record, 8) ? -1 : 1;
        if (status > 0 && record.attribute == REGCOUNT && nj_u32(record.value.at) == symbol) {
            *registers = nj_u32(record.value.at + 4);
        }
    }
    return status == 0;
}

/* Reads which chip the image is for; false where `.nv.compat` breaks a rule. */
static bool read_arch(const nj_elf *elf, size_t *quota, nj_cubin *cubin)
{
    cubin->sm = (elf->abi < 8 ? elf->flags : elf->flags >> 8) & 0xff;
    cubin->arch_specific = (elf->flags & (elf->abi < 8 ? 0x800 : 0x8)) != 0;
    const nj_section *section = nj_elf_find(elf, ".nv.compat", (nj_span){elf->image.at, 0});
    nj_reader reader;
    nj_record record;
    if (elf->abi < 8 || cubin->arch_specific || section == NULL) {
        return true;
    }
    int status = start(section, quota, &reader) ? 1 : -1;
    while (status > 0 && (status = next(&reader, &record)) > 0) {
        if (record.form == BVAL && record.attribute == ACCELERATOR_TARGET && record.value.at[0] == 1) {
            cubin->arch_specific = true;
        }
    }
    return status == 0;
}

static bool read_param(const nj_record *record, nj_cubin_kernel *kernel)
{
    if (!has_bytes(record, 12)) {
        return false;
    }
    const unsigned char *value = record->value.at;
    size_t ordinal = nj_u16(value + 4);
    nj_param param = {.offset = nj_u16(value + 6), .size = (uint16_t)(nj_u32(value + 8) >> 18)};
    if (ordinal >= NJ_CUBIN_PARAMS_MAX || param.size == 0 || kernel->params[ordinal].size != 0) {
        return false;
    }
    kernel->params[ordinal] = param;
    kernel->param_count++;
    kernel->param_end = ordinal >= kernel->param_end ? ordinal + 1 : kernel->param_end;
    return true;
}

static bool read_bank(const nj_record *record, nj_cubin_kernel *kernel)
{
    if (!has_bytes(record, 8)) {
        return false;
    }
    kernel->param_base = nj_u16(record->value.at + 4);
    kernel->bank_bytes = nj_u16(record->value.at + 6);
    return true;
}

static bool read_triple(const nj_record *record, uint32_t triple[3])
{
    if (!has_bytes(record, 12)) {
        return false;
    }
    for (size_t i = 0; i < 3; i++) {
        triple[i] = nj_u32(record->value.at + 4 * i);
    }
    return true;
}

static bool read_attribute(const nj_record *record, nj_cubin_kernel *kernel)
{
    uint32_t unused[3];
    switch (record->attribute) {
    case KPARAM_INFO: return read_param(record, kernel);
    case PARAM_CBANK: return read_bank(record, kernel);
    case MAX_THREADS: return read_triple(record, unused);
    case REQNTID: return read_triple(record, kernel->block);
    case CTA_PER_CLUSTER: return read_triple(record, kernel->cluster);
    default: return true;
    }
}

/* Whether params lie one after the other, and fill the bank. */
static bool params_are_sound(const nj_cubin_kernel *kernel)
{
    uint32_t end = 0;
    if (kernel->param_end != kernel->param_count) {
        return false;
    }
    for (size_t i = 0; i < kernel->param_count; i++) {
        if (kernel->params[i].offset < end) {
            return false;
        }
        end = (uint32_t)kernel->params[i].offset + kernel->params[i].size;
    }
    return end == kernel->bank_bytes;
}

static bool read_kernel(const nj_elf *elf, const nj_symbol *symbol, size_t *quota, nj_cubin_kernel *kernel)
{
    const nj_section *section = nj_elf_find(elf, ".nv.info.", symbol->name);
    nj_reader reader;
    nj_record record;
    *kernel = (nj_cubin_kernel){.cluster = {1, 1, 1}};
    if (section == NULL || section->info != symbol->section || !start(section, quota, &reader)) {
        return false;
    }
    int status = 1;
    while (status > 0 && (status = next(&reader, &record)) > 0) {
        status = read_attribute(&record, kernel) ? 1 : -1;
    }
    return status == 0 && params_are_sound(kernel);
}

/* The number of the kernel `symbol`; -1 if there is none. */
static int find_kernel(const nj_symbol *kernels, int count, nj_span symbol)
{
    for (int i = 0; i < count; i++) {
        if (nj_span_equal(kernels[i].name, symbol)) {
            return i;
        }
    }
    return -1;
}

/* The static shared memory that counts against the driver's limits. */
static uint32_t own_shared(const nj_elf *elf, nj_span symbol, uint32_t sm)
{
    const nj_section *section = nj_elf_find(elf, ".nv.shared.", symbol);
    uint64_t bytes = section == NULL ? 0 : section->size, system = sm >= 90 ? SYSTEM_SHARED_BYTES : 0;
    uint64_t own = bytes > system ? bytes - system : 0;
    return own > SHARED_BYTES_MAX ? SHARED_BYTES_MAX : (uint32_t)own;
}

bool nj_cubin_read(nj_span image, nj_span symbol, nj_cubin *cubin)
{
    nj_elf elf;
    nj_symbol kernels[NJ_SECTIONS_MAX];
    size_t quota = RECORDS_MAX;
    int count = nj_elf_read(image, &elf) ? nj_elf_kernels(&elf, kernels) : -1;
    int wanted = find_kernel(kernels, count, symbol);
    uint32_t registers = 0;
    if (wanted < 0 || !read_usage(&elf, kernels[wanted].number, &quota, &registers) || !read_arch(&elf, &quota, cubin)) {
        return false;
    }
    for (int i = 1; i <= count; i++) {
        /* that of `symbol` last: what it says stays */
        if (!read_kernel(&elf, &kernels[(wanted + i) % count], &quota, &cubin->kernel)) {
            return false;
        }
    }
    cubin->kernel.shared_bytes = own_shared(&elf, symbol, cubin->sm);
    cubin->kernel.registers = registers;
    return true;
}
