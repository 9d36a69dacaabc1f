#include "elf.h"

#include "cold.h"

enum {
    HEADER_BYTES = 64,
    SEGMENT_BYTES = 56,
    SECTION_BYTES = 64,
    SYMBOL_BYTES = 24,
    SYMBOLS_MAX = 65536,
    NAME_BYTES_MAX = 16384,
};

/* The names are those of elf.py. */
enum { ET_EXEC = 2, EM_CUDA = 190, SHT_SYMTAB = 2, SHT_STRTAB = 3, STT_FUNC = 2, STO_ENTRY = 0x10 };

static bool slice(nj_span whole, uint64_t offset, uint64_t size, nj_span *part)
{
    if (offset > whole.size || size > whole.size - offset) {
        return false;
    }
    *part = (nj_span){whole.at + offset, (size_t)size};
    return true;
}

static bool name_at(nj_span names, uint32_t at, nj_span *name)
{
    if (at >= names.size) {
        return false;
    }
    size_t most = names.size - at < NAME_BYTES_MAX ? names.size - at : NAME_BYTES_MAX;
    const unsigned char *start = names.at + at, *end = memchr(start, 0, most);
    *name = (nj_span){start, end == NULL ? 0 : (size_t)(end - start)};
    return end != NULL;
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

static bool segments_lie_inside(nj_span image)
{
    uint16_t bytes = nj_u16(image.at + 54), count = nj_u16(image.at + 56);
    nj_span table, part;
    if ((count != 0 && bytes != SEGMENT_BYTES) ||
        !slice(image, nj_u64(image.at + 32), (uint64_t)count * SEGMENT_BYTES, &table)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const unsigned char *segment = table.at + i * SEGMENT_BYTES;
        if (!slice(image, nj_u64(segment + 8), nj_u64(segment + 32), &part)) {
            return false;
        }
    }
    return true;
}

static bool read_header(nj_elf *elf)
{
    static const unsigned char ident[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    const unsigned char *header = elf->image.at;
    if (elf->image.size < HEADER_BYTES || memcmp(header, ident, sizeof ident) != 0 ||
        nj_u16(header + 52) != HEADER_BYTES || nj_u16(header + 16) != ET_EXEC || nj_u16(header + 18) != EM_CUDA ||
        nj_u16(header + 58) != SECTION_BYTES) {
        return false;
    }
    elf->abi = header[8];
    elf->flags = nj_u32(header + 48);
    elf->section_count = nj_u16(header + 60);
    return (elf->abi == 7 || elf->abi == 8) && elf->section_count > 0 && elf->section_count <= NJ_SECTIONS_MAX &&
           segments_lie_inside(elf->image);
}

static bool read_section(nj_span image, const unsigned char *header, nj_section *section)
{
    section->type = nj_u32(header + 4);
    section->link = nj_u32(header + 40);
    section->info = nj_u32(header + 44);
    section->size = nj_u64(header + 32);
    /* a driver may compute the address of a section without bytes too */
    return slice(image, nj_u64(header + 24), section->type == NJ_SHT_NOBITS ? 0 : section->size, &section->content);
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

static bool name_sections(nj_elf *elf, const unsigned char *table)
{
    uint16_t number = nj_u16(elf->image.at + 62);
    if (number >= elf->section_count || elf->sections[number].type != SHT_STRTAB) {
        return false;
    }
    nj_span names = elf->sections[number].content;
    size_t bytes = 0;
    for (size_t i = 0; i < elf->section_count; i++) {
        if (!name_at(names, nj_u32(table + i * SECTION_BYTES), &elf->sections[i].name) || is_named_before(elf, i)) {
            return false;
        }
        bytes += elf->sections[i].name.size;
    }
    /* names may share bytes, but not so that they become more than the image has */
    return bytes <= elf->image.size;
}

bool nj_elf_read(nj_span image, nj_elf *elf)
{
    nj_span table;
    elf->image = image;
    if (!read_header(elf) || !slice(image, nj_u64(image.at + 40), elf->section_count * SECTION_BYTES, &table)) {
        return false;
    }
    for (size_t i = 0; i < elf->section_count; i++) {
        if (!read_section(image, table.at + i * SECTION_BYTES, &elf->sections[i])) {
            return false;
        }
    }
    return name_sections(elf, table.at);
}

/* Finds the symbol table and the names that it points into. */
static bool find_symbols(const nj_elf *elf, nj_span *symbols, nj_span *names)
{
    const nj_section *table = nj_elf_find(elf, ".symtab", (nj_span){elf->image.at, 0});
    if (table == NULL || table->type != SHT_SYMTAB || table->content.size % SYMBOL_BYTES != 0 ||
        table->content.size > SYMBOLS_MAX * SYMBOL_BYTES || table->link >= elf->section_count ||
        elf->sections[table->link].type != SHT_STRTAB) {
        return false;
    }
    *symbols = table->content;
    *names = elf->sections[table->link].content;
    return true;
}

static bool read_kernel(const nj_elf *elf, const unsigned char *entry, nj_span names, nj_symbol *symbol)
{
    symbol->section = nj_u16(entry + 6);
    if (symbol->section >= elf->section_count || !name_at(names, nj_u32(entry), &symbol->name)) {
        return false;
    }
    const nj_section *text = &elf->sections[symbol->section];
    return text->type != NJ_SHT_NOBITS && nj_span_joins(text->name, ".text.", symbol->name) && is_ascii(symbol->name);
}

int nj_elf_kernels(const nj_elf *elf, nj_symbol kernels[NJ_SECTIONS_MAX])
{
    nj_span symbols, names;
    bool taken[NJ_SECTIONS_MAX] = {false};
    int count = 0;
    if (!find_symbols(elf, &symbols, &names)) {
        return -1;
    }
    for (size_t at = 0; at < symbols.size; at += SYMBOL_BYTES) {
        const unsigned char *entry = symbols.at + at;
        if ((entry[4] & 0xf) != STT_FUNC || (entry[5] & STO_ENTRY) == 0) {
            continue;
        }
        nj_symbol symbol;
        /* no two have one name: the name is that of the section */
        if (!read_kernel(elf, entry, names, &symbol) || taken[symbol.section]) {
            return -1;
        }
        taken[symbol.section] = true;
        symbol.number = (uint32_t)(at / SYMBOL_BYTES);
        kernels[count++] = symbol;
    }
    return count;
}
