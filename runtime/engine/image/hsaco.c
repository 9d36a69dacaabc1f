#include "image/hsaco.h"

#include "image/msgpack.h"

enum {
    ELFOSABI_AMDGPU_HSA = 64,
    SHT_NOTE = 7,
    SHT_DYNSYM = 11,
    STT_OBJECT = 1,
    NT_AMDGPU_METADATA = 32,
    NOTE_HEADER_BYTES = 12,
    KERNELS_MAX = 256,
    DESCRIPTOR_BYTES = 64,
    SHARED_BYTES_MAX = 1 << 30, /* more than any device has */
};

/* fields of e_flags */
enum { EF_AMDGPU_MACH = 0xff, EF_AMDGPU_FEATURE_XNACK = 0x300, XNACK_ANY = 0x100, EF_AMDGPU_FEATURE_SRAMECC = 0xc00, SRAMECC_ANY = 0x400 };

/* EF_AMDGPU_MACH_AMDGCN_* of the archs that nojit builds for (LLVM's guide, "Header", table "AMDGPU e_flags"). An image runs only on the
 * arch that it names. Generic targets (gfx9-4-generic) have other numbers; Triton does not use them. */
static const struct {
    uint32_t mach, gfx;
} machines[] = {{0x4c, 942}, {0x4f, 950}, {0x4e, 1201}};

static bool read_arch(nj_hsaco *hsaco, nj_error *error)
{
    uint32_t flags = hsaco->elf.flags, xnack = flags & EF_AMDGPU_FEATURE_XNACK, sramecc = flags & EF_AMDGPU_FEATURE_SRAMECC;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        if (machines[i].mach == (flags & EF_AMDGPU_MACH)) {
            hsaco->gfx = machines[i].gfx;
        }
    }
    if (hsaco->gfx == 0) {
        return nj_break(error, "hsaco-arch", nj_format("EF_AMDGPU_MACH %#x", flags & EF_AMDGPU_MACH).text, "expected an image for gfx942, gfx950 or gfx1201");
    }
    /* an image with XNACK or SRAMECC fixed to on or off runs only on devices with that setting */
    return ((xnack == 0 || xnack == XNACK_ANY) && (sramecc == 0 || sramecc == SRAMECC_ANY)) ||
           nj_break(error, "hsaco-arch", nj_format("flags %#x", flags).text, "expected an image for any setting of XNACK and SRAMECC");
}

/* Finds the AMDGPU metadata among the ELF notes. */
static bool find_metadata(const nj_elf *elf, nj_span *metadata, nj_error *error)
{
    const nj_section *section = nj_elf_find(elf, ".note", (nj_span){elf->image.at, 0});
    nj_cursor notes = {section == NULL || section->type != SHT_NOTE ? (nj_span){elf->image.at, 0} : section->content};
    nj_span header, name;
    while (nj_take(&notes, NOTE_HEADER_BYTES, &header)) {
        uint64_t name_bytes = nj_u32(header.at), bytes = nj_u32(header.at + 4);
        if (!nj_take(&notes, (name_bytes + 3) / 4 * 4, &name) || !nj_take(&notes, (bytes + 3) / 4 * 4, metadata)) {
            break;
        }
        if (nj_u32(header.at + 8) == NT_AMDGPU_METADATA && name_bytes == 7 && memcmp(name.at, "AMDGPU", 7) == 0) {
            metadata->size = (size_t)bytes;
            return true;
        }
    }
    return nj_break(error, "hsaco-metadata", "none", "expected a note with the metadata of AMDGPU");
}

static bool refuse_metadata(nj_error *error, const char *got)
{
    return nj_break(error, "hsaco-metadata", got, "expected the metadata of AMDGPU in MessagePack");
}

/* Takes the key of the next pair of a map. */
static bool take_key(nj_cursor *cursor, nj_span *key)
{
    nj_msgpack value;
    bool taken = nj_msgpack_take(cursor, &value) && value.kind == NJ_MSGPACK_TEXT;
    *key = value.text;
    return taken;
}

static bool read_metadata(nj_hsaco *hsaco, nj_span metadata, nj_error *error)
{
    nj_cursor cursor = {metadata};
    nj_msgpack map, value;
    bool good = nj_msgpack_take(&cursor, &map) && map.kind == NJ_MSGPACK_MAP;
    for (uint64_t i = 0; good && i < map.number; i++) {
        nj_span key;
        good = take_key(&cursor, &key);
        nj_cursor before = cursor;
        if (good && nj_span_is(key, "amdhsa.kernels")) {
            good = nj_msgpack_take(&before, &value) && value.kind == NJ_MSGPACK_ARRAY && value.number <= KERNELS_MAX && hsaco->kernel_count == 0;
            hsaco->kernel_count = good ? (size_t)value.number : 0;
            hsaco->kernels = before.rest;
        }
        good = good && nj_msgpack_skip(&cursor);
    }
    return good || refuse_metadata(error, "other bytes");
}

/* Limits symbols times kernels, because each kernel searches all symbols for its descriptor. */
static bool check_lookups(const nj_hsaco *hsaco, nj_error *error)
{
    size_t symbols = hsaco->symbols.entries.size / NJ_SYMBOL_BYTES;
    return symbols * hsaco->kernel_count <= NJ_SYMBOLS_MAX ||
           nj_break(error, "hsaco-symbols", nj_format("%zu of %zu kernels", symbols, hsaco->kernel_count).text,
                    "expected at most %d symbols, divided by the number of kernels", NJ_SYMBOLS_MAX);
}

bool nj_hsaco_read(nj_span image, nj_hsaco *hsaco, nj_error *error)
{
    nj_span metadata;
    hsaco->gfx = 0;
    hsaco->kernel_count = 0;
    hsaco->kernels = (nj_span){image.at, 0};
    if (!nj_elf_read(image, &nj_elf_hsaco, &hsaco->elf, error)) {
        return false;
    }
    if (image.at[7] != ELFOSABI_AMDGPU_HSA) {
        return nj_break(error, "hsaco-abi", nj_format("%d", image.at[7]).text, "expected OS/ABI %d (HSA)", ELFOSABI_AMDGPU_HSA);
    }
    return read_arch(hsaco, error) && nj_elf_symbols(&hsaco->elf, ".dynsym", SHT_DYNSYM, &hsaco->symbols, error) &&
           find_metadata(&hsaco->elf, &metadata, error) && read_metadata(hsaco, metadata, error) && check_lookups(hsaco, error);
}

/* The facts of a kernel from the metadata. */
typedef struct {
    nj_span symbol; /* symbol of its kernel descriptor */
    uint64_t argument_bytes, shared_bytes, stack_bytes, wave_threads, block_threads, registers;
} described;

static bool starts_with(nj_span text, const char *start)
{
    return text.size >= strlen(start) && memcmp(text.at, start, strlen(start)) == 0;
}

/* Takes an argument. Skips hidden arguments, which HIP fills. */
static bool take_argument(nj_cursor *cursor, nj_image_kernel *kernel)
{
    nj_msgpack map, value;
    nj_span key;
    uint64_t offset = UINT64_MAX, size = 0;
    bool hidden = false, good = nj_msgpack_take(cursor, &map) && map.kind == NJ_MSGPACK_MAP;
    for (uint64_t i = 0; good && i < map.number; i++) {
        good = take_key(cursor, &key);
        nj_cursor before = *cursor;
        good = good && nj_msgpack_take(&before, &value) && nj_msgpack_skip(cursor);
        if (good && nj_span_is(key, ".offset")) {
            offset = value.kind == NJ_MSGPACK_NUMBER ? value.number : UINT64_MAX;
        } else if (good && nj_span_is(key, ".size")) {
            size = value.kind == NJ_MSGPACK_NUMBER ? value.number : 0;
        } else if (good && nj_span_is(key, ".value_kind")) {
            hidden = value.kind == NJ_MSGPACK_TEXT && starts_with(value.text, "hidden_");
        }
    }
    if (!good || offset > UINT16_MAX || size > UINT16_MAX || size == 0) {
        return false;
    }
    if (!hidden) {
        if (kernel->param_count == NJ_IMAGE_PARAMS_MAX) {
            return false;
        }
        kernel->params[kernel->param_count++] = (nj_image_param){.offset = (uint16_t)offset, .size = (uint16_t)size};
    }
    return true;
}

static bool take_arguments(nj_cursor *cursor, nj_image_kernel *kernel)
{
    nj_msgpack array;
    bool good = nj_msgpack_take(cursor, &array) && array.kind == NJ_MSGPACK_ARRAY && kernel->param_count == 0;
    for (uint64_t i = 0; good && i < array.number; i++) {
        good = take_argument(cursor, kernel);
    }
    return good;
}

static void keep_fact(nj_span key, const nj_msgpack *value, described *it, nj_image_kernel *kernel)
{
    const struct {
        const char *name;
        uint64_t *number;
    } numbers[] = {{".kernarg_segment_size", &it->argument_bytes}, {".group_segment_fixed_size", &it->shared_bytes},
                   {".private_segment_fixed_size", &it->stack_bytes}, {".wavefront_size", &it->wave_threads},
                   {".max_flat_workgroup_size", &it->block_threads}, {".vgpr_count", &it->registers}};
    for (size_t i = 0; value->kind == NJ_MSGPACK_NUMBER && i < sizeof numbers / sizeof *numbers; i++) {
        if (nj_span_is(key, numbers[i].name)) {
            *numbers[i].number = value->number;
        }
    }
    if (value->kind == NJ_MSGPACK_TEXT && nj_span_is(key, ".name")) {
        kernel->symbol = value->text;
    } else if (value->kind == NJ_MSGPACK_TEXT && nj_span_is(key, ".symbol")) {
        it->symbol = value->text;
    }
}

static bool take_described(nj_cursor *cursor, described *it, nj_image_kernel *kernel)
{
    nj_msgpack map, value;
    nj_span key;
    bool good = nj_msgpack_take(cursor, &map) && map.kind == NJ_MSGPACK_MAP;
    for (uint64_t i = 0; good && i < map.number; i++) {
        good = take_key(cursor, &key);
        if (good && nj_span_is(key, ".args")) {
            good = take_arguments(cursor, kernel);
        } else if (good) {
            nj_cursor before = *cursor;
            good = nj_msgpack_take(&before, &value) && nj_msgpack_skip(cursor);
            if (good) {
                keep_fact(key, &value, it, kernel);
            }
        }
    }
    return good && kernel->symbol.size > 0 && it->argument_bytes <= UINT16_MAX && it->shared_bytes <= SHARED_BYTES_MAX &&
           it->stack_bytes <= UINT32_MAX && it->block_threads <= UINT16_MAX && it->registers <= UINT16_MAX &&
           (it->wave_threads == 32 || it->wave_threads == 64);
}

/* Finds the symbol of a name, which must be unique; `entry` is NULL if there is none. */
static bool find_symbol(const nj_hsaco *hsaco, nj_span wanted, const unsigned char **entry, nj_error *error)
{
    nj_span entries = hsaco->symbols.entries, name;
    *entry = NULL;
    for (size_t at = 0; at < entries.size; at += NJ_SYMBOL_BYTES) {
        if (!nj_elf_name(&hsaco->elf, &hsaco->symbols, entries.at + at, &name, error)) {
            return false;
        }
        if (!nj_span_equal(name, wanted)) {
            continue;
        }
        if (*entry != NULL) {
            return nj_break(error, "hsaco-names", nj_quote(wanted).text, "expected each symbol once");
        }
        *entry = entries.at + at;
    }
    return true;
}

/* Finds the 64 bytes of a kernel descriptor and its virtual address. */
static bool find_descriptor(const nj_hsaco *hsaco, nj_span symbol, nj_span *bytes, uint64_t *address, nj_error *error)
{
    const nj_elf *elf = &hsaco->elf;
    const unsigned char *entry;
    if (!find_symbol(hsaco, symbol, &entry, error)) {
        return false;
    }
    size_t number = entry == NULL ? SIZE_MAX : nj_u16(entry + 6);
    const nj_section *section = number < elf->section_count ? &elf->sections[number] : NULL;
    *address = entry == NULL ? 0 : nj_u64(entry + 8);
    if (section == NULL || (entry[4] & 0xf) != STT_OBJECT || nj_u64(entry + 16) != DESCRIPTOR_BYTES || *address < section->address ||
        section->content.size < DESCRIPTOR_BYTES || *address - section->address > section->content.size - DESCRIPTOR_BYTES) {
        return nj_break(error, "hsaco-descriptor", nj_quote(symbol).text, "expected an object of %d bytes that describes the kernel", DESCRIPTOR_BYTES);
    }
    *bytes = (nj_span){section->content.at + (*address - section->address), DESCRIPTOR_BYTES};
    return true;
}

static bool check_number(const nj_image_kernel *kernel, const char *what, uint64_t told, uint64_t found, nj_error *error)
{
    return told == found || nj_break(error, "hsaco-descriptor", nj_format("%llu", (unsigned long long)found).text,
                                     "expected the descriptor of %s to say %llu %s, as the metadata does", nj_quote(kernel->symbol).text,
                                     (unsigned long long)told, what);
}

/* Checks that the kernel descriptor agrees with the metadata, and that its entry point lies in .text. */
static bool check_descriptor(const nj_hsaco *hsaco, const described *it, nj_image_kernel *kernel, nj_error *error)
{
    const nj_section *text = nj_elf_find(&hsaco->elf, ".text", (nj_span){hsaco->elf.image.at, 0});
    nj_span bytes;
    uint64_t address;
    if (!find_descriptor(hsaco, it->symbol, &bytes, &address, error)) {
        return false;
    }
    /* kernel_code_entry_byte_offset; ENABLE_WAVEFRONT_SIZE32 of kernel_code_properties */
    uint64_t entry = address + nj_u64(bytes.at + 16), wave_threads = (nj_u16(bytes.at + 56) >> 10 & 1) != 0 ? 32 : 64;
    if (text == NULL || entry < text->address || entry - text->address >= text->content.size) {
        return nj_break(error, "hsaco-descriptor", nj_format("%#llx", (unsigned long long)entry).text, "expected the code of %s in section .text",
                        nj_quote(kernel->symbol).text);
    }
    kernel->text_bytes = text->content.size;
    return check_number(kernel, "bytes of shared memory", it->shared_bytes, nj_u32(bytes.at), error) &&
           check_number(kernel, "bytes of stack", it->stack_bytes, nj_u32(bytes.at + 4), error) &&
           check_number(kernel, "bytes of arguments", it->argument_bytes, nj_u32(bytes.at + 8), error) &&
           check_number(kernel, "threads of a wave", it->wave_threads, wave_threads, error);
}

/* Checks that arguments are in order, do not overlap, and lie within the kernel argument segment. */
static bool check_arguments(const described *it, const nj_image_kernel *kernel, nj_error *error)
{
    uint64_t end = 0;
    for (size_t i = 0; i < kernel->param_count; i++) {
        nj_image_param param = kernel->params[i];
        if (param.offset < end || (uint64_t)param.offset + param.size > it->argument_bytes) {
            return nj_break(error, "hsaco-params", nj_format("%d bytes at %d", param.size, param.offset).text,
                            "expected arguments of %s one after the other, within %llu bytes", nj_quote(kernel->symbol).text,
                            (unsigned long long)it->argument_bytes);
        }
        end = (uint64_t)param.offset + param.size;
    }
    return true;
}

bool nj_hsaco_kernel_take(const nj_hsaco *hsaco, nj_cursor *rest, nj_hsaco_kernel *kernel, nj_error *error)
{
    described it = {0};
    it.symbol = hsaco->kernels;
    it.symbol.size = 0;
    memset(kernel, 0, sizeof *kernel);
    kernel->it.symbol = it.symbol;
    if (!take_described(rest, &it, &kernel->it)) {
        return refuse_metadata(error, "other facts of a kernel");
    }
    kernel->it.largest_block = (nj_declared){true, {(uint32_t)it.block_threads, 1, 1}};
    kernel->it.registers = (uint32_t)it.registers;
    kernel->it.stack_bytes = (uint32_t)it.stack_bytes;
    kernel->it.static_shared_bytes = it.shared_bytes;
    kernel->wave_threads = (uint32_t)it.wave_threads;
    return check_arguments(&it, &kernel->it, error) && check_descriptor(hsaco, &it, &kernel->it, error);
}
