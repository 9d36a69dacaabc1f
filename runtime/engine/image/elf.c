#include "image/elf.h"

#include <inttypes.h>

enum {
    HEADER_BYTES = 64,
    SEGMENT_BYTES = 56,
    SECTION_BYTES = 64,
    /* Triton's images have about 24 sections and symbols; this limit and those of elf.h bound the time for a hostile image */
    NAME_BYTES_MAX = 16384,
};

enum { ET_EXEC = 2, ET_DYN = 3, EM_CUDA = 190, EM_AMDGPU = 224, SHT_SYMTAB = 2, SHT_STRTAB = 3, STT_FUNC = 2, STO_ENTRY = 0x10 };

const nj_elf_kind nj_elf_cubin = {EM_CUDA, ET_EXEC, "CUDA", {7, 8}, "cubin-header", "cubin-abi", "cubin-segments", "cubin-sections",
                                  "cubin-names", "cubin-symbols"};
/* ELFABIVERSION_AMDGPU_HSA_V5 and _V6 */
const nj_elf_kind nj_elf_hsaco = {EM_AMDGPU, ET_DYN, "AMDGPU", {3, 4}, "hsaco-header", "hsaco-abi", "hsaco-segments", "hsaco-sections",
                                  "hsaco-names", "hsaco-symbols"};

const nj_elf_kind *nj_elf_kind_of(nj_span image)
{
    return image.size >= HEADER_BYTES && nj_u16(image.at + 18) == EM_AMDGPU ? &nj_elf_hsaco : &nj_elf_cubin;
}

/* Returns a part of the image in `part`; breaks `rule` if it is out of range. */
static bool slice(nj_span image, const char *rule, uint64_t offset, uint64_t size, nj_span *part, nj_error *error)
{
    if (offset > image.size || size > image.size - offset) {
        return nj_break(error, rule, nj_format("an image of %zu", image.size).text, "expected %" PRIu64 " bytes from byte %" PRIu64,
                        size, offset);
    }
    *part = (nj_span){image.at + offset, (size_t)size};
    return true;
}

static bool name_at(const char *rule, nj_span names, uint32_t at, nj_span *name, nj_error *error)
{
    size_t rest = at < names.size ? names.size - at : 0, most = rest < NAME_BYTES_MAX ? rest : NAME_BYTES_MAX;
    const unsigned char *start = names.at + (rest > 0 ? at : 0), *end = memchr(start, 0, most);
    if (end == NULL) {
        return nj_break(error, rule, nj_format("no end after byte %u", at).text,
                        "expected a name of at most %d bytes", NAME_BYTES_MAX);
    }
    *name = (nj_span){start, (size_t)(end - start)};
    return true;
}

static bool is_ascii(nj_span text)
{
    unsigned char all = 0;
    for (size_t i = 0; i < text.size; i++) {
        all |= text.at[i];
    }
    return all < 0x80;
}

const nj_section *nj_elf_find(const nj_elf *elf, const char *prefix, nj_span rest)
{
    for (size_t i = 0; i < elf->section_count; i++) {
        if (nj_span_joins(elf->sections[i].name, prefix, rest)) {
            return &elf->sections[i];
        }
    }
    return NULL;
}

static bool check_segments(const nj_elf *elf, nj_error *error)
{
    nj_span image = elf->image;
    uint16_t bytes = nj_u16(image.at + 54), count = nj_u16(image.at + 56);
    nj_span table, part;
    if (count != 0 && bytes != SEGMENT_BYTES) {
        return nj_break(error, elf->kind->segments, nj_format("%d", bytes).text, "expected segment headers of %d bytes", SEGMENT_BYTES);
    }
    if (!slice(image, elf->kind->segments, nj_u64(image.at + 32), (uint64_t)count * SEGMENT_BYTES, &table, error)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const unsigned char *segment = table.at + i * SEGMENT_BYTES;
        if (!slice(image, elf->kind->segments, nj_u64(segment + 8), nj_u64(segment + 32), &part, error)) {
            return false;
        }
    }
    return true;
}

static bool read_header(nj_elf *elf, nj_error *error)
{
    static const unsigned char ident[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    const unsigned char *header = elf->image.at;
    if (elf->image.size < HEADER_BYTES) {
        return nj_break(error, elf->kind->header, nj_format("%zu", elf->image.size).text, "expected an ELF header of %d bytes", HEADER_BYTES);
    }
    if (memcmp(header, ident, sizeof ident) != 0 || nj_u16(header + 52) != HEADER_BYTES) {
        return nj_break(error, elf->kind->header, nj_quote((nj_span){header, sizeof ident}).text, "expected a 64-bit little-endian ELF file");
    }
    uint16_t kind = nj_u16(header + 16), machine = nj_u16(header + 18);
    if (kind != elf->kind->type || machine != elf->kind->machine) {
        return nj_break(error, elf->kind->header, nj_format("type %d, machine %d", kind, machine).text,
                        "expected an ELF file of type %d for machine %d (%s)", elf->kind->type, elf->kind->machine, elf->kind->machine_name);
    }
    elf->abi = header[8];
    elf->flags = nj_u32(header + 48);
    elf->section_count = nj_u16(header + 60);
    if (elf->abi != elf->kind->abis[0] && elf->abi != elf->kind->abis[1]) {
        return nj_break(error, elf->kind->abi, nj_format("%d", elf->abi).text, "expected ABI %d or %d", elf->kind->abis[0],
                        elf->kind->abis[1]);
    }
    if (nj_u16(header + 58) != SECTION_BYTES || elf->section_count == 0 || elf->section_count > NJ_SECTIONS_MAX) {
        return nj_break(error, elf->kind->sections, nj_format("%zu", elf->section_count).text, "expected 1 to %d sections", NJ_SECTIONS_MAX);
    }
    return check_segments(elf, error);
}

static bool read_section(const nj_elf *elf, const unsigned char *header, nj_section *section, nj_error *error)
{
    nj_span image = elf->image;
    section->address = nj_u64(header + 16);
    section->type = nj_u32(header + 4);
    section->link = nj_u32(header + 40);
    section->info = nj_u32(header + 44);
    section->size = nj_u64(header + 32);
    /* checks the offset of SHT_NOBITS sections too, because a driver may compute their address */
    uint64_t size = section->type == NJ_SHT_NOBITS ? 0 : section->size;
    return slice(image, elf->kind->sections, nj_u64(header + 24), size, &section->content, error);
}

static bool is_named_before(const nj_elf *elf, size_t number)
{
    nj_span name = elf->sections[number].name;
    for (size_t i = 0; i < number && name.size > 0; i++) {
        if (nj_span_equal(elf->sections[i].name, name)) {
            return true;
        }
    }
    return false;
}

static bool name_sections(nj_elf *elf, const unsigned char *table, nj_error *error)
{
    uint16_t number = nj_u16(elf->image.at + 62);
    if (number >= elf->section_count || elf->sections[number].type != SHT_STRTAB) {
        return nj_break(error, elf->kind->sections, nj_format("section %d", number).text,
                        "expected the section names in a string table");
    }
    size_t bytes = 0;
    for (size_t i = 0; i < elf->section_count; i++) {
        nj_span *name = &elf->sections[i].name;
        if (!name_at(elf->kind->names, elf->sections[number].content, nj_u32(table + i * SECTION_BYTES), name, error)) {
            return false;
        }
        if (is_named_before(elf, i)) {
            return nj_break(error, elf->kind->names, nj_quote(*name).text, "expected each section name once");
        }
        bytes += name->size;
    }
    /* names may overlap in the string table, so this limits the sum of their lengths, not their place */
    return bytes <= elf->image.size ||
           nj_break(error, elf->kind->names, "more", "expected section names of at most %zu bytes together", elf->image.size);
}

bool nj_elf_read(nj_span image, const nj_elf_kind *kind, nj_elf *elf, nj_error *error)
{
    nj_span table;
    elf->kind = kind;
    elf->image = image;
    if (!read_header(elf, error) ||
        !slice(image, elf->kind->sections, nj_u64(image.at + 40), elf->section_count * SECTION_BYTES, &table, error)) {
        return false;
    }
    for (size_t i = 0; i < elf->section_count; i++) {
        if (!read_section(elf, table.at + i * SECTION_BYTES, &elf->sections[i], error)) {
            return false;
        }
    }
    return name_sections(elf, table.at, error);
}

bool nj_elf_symbols(const nj_elf *elf, const char *section, uint32_t type, nj_symbols *symbols, nj_error *error)
{
    const nj_section *table = nj_elf_find(elf, section, (nj_span){elf->image.at, 0});
    const char *rule = elf->kind->symbols;
    if (table == NULL || table->type != type || table->content.size % NJ_SYMBOL_BYTES != 0) {
        return nj_break(error, rule, table == NULL ? "none" : nj_format("%zu bytes", table->content.size).text, "expected a symbol table");
    }
    if (table->content.size > NJ_SYMBOLS_MAX * NJ_SYMBOL_BYTES) {
        return nj_break(error, rule, nj_format("%zu", table->content.size / NJ_SYMBOL_BYTES).text, "expected at most %d symbols", NJ_SYMBOLS_MAX);
    }
    if (table->link >= elf->section_count || elf->sections[table->link].type != SHT_STRTAB) {
        return nj_break(error, rule, nj_format("section %u", table->link).text, "expected the symbol names in a string table");
    }
    *symbols = (nj_symbols){table->content, elf->sections[table->link].content};
    return true;
}

bool nj_elf_name(const nj_elf *elf, const nj_symbols *symbols, const unsigned char *entry, nj_span *name, nj_error *error)
{
    return name_at(elf->kind->names, symbols->names, nj_u32(entry), name, error);
}

static bool read_kernel(const nj_elf *elf, const unsigned char *entry, const nj_symbols *symbols, nj_symbol *symbol, nj_error *error)
{
    symbol->section = nj_u16(entry + 6);
    if (!nj_elf_name(elf, symbols, entry, &symbol->name, error)) {
        return false;
    }
    if (!is_ascii(symbol->name)) {
        return nj_break(error, "cubin-names", nj_quote(symbol->name).text, "expected a name in ASCII");
    }
    const nj_section *text = symbol->section < elf->section_count ? &elf->sections[symbol->section] : NULL;
    return (text != NULL && text->type != NJ_SHT_NOBITS && nj_span_joins(text->name, ".text.", symbol->name)) ||
           nj_break(error, "cubin-text", nj_format("section %d", symbol->section).text,
                    "expected section .text.%.*s to hold the code of %s", (int)symbol->name.size, (const char *)symbol->name.at,
                    nj_quote(symbol->name).text);
}

int nj_elf_kernels(const nj_elf *elf, nj_symbol kernels[NJ_SECTIONS_MAX], nj_error *error)
{
    nj_symbols symbols;
    bool taken[NJ_SECTIONS_MAX] = {false};
    int count = 0;
    if (!nj_elf_symbols(elf, ".symtab", SHT_SYMTAB, &symbols, error)) {
        return -1;
    }
    for (size_t at = 0; at < symbols.entries.size; at += NJ_SYMBOL_BYTES) {
        const unsigned char *entry = symbols.entries.at + at;
        if ((entry[4] & 0xf) != STT_FUNC || (entry[5] & STO_ENTRY) == 0) {
            continue;
        }
        nj_symbol symbol;
        if (!read_kernel(elf, entry, &symbols, &symbol, error)) {
            return -1;
        }
        /* a section has the name of its kernel, so two kernels of the same name would share a section */
        if (taken[symbol.section]) {
            nj_note_break(error, "cubin-names", nj_quote(symbol.name).text, "expected each kernel once");
            return -1;
        }
        taken[symbol.section] = true;
        symbol.number = (uint32_t)(at / NJ_SYMBOL_BYTES);
        kernels[count++] = symbol;
    }
    return count;
}
