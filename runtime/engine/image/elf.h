/* Reads the ELF file of an image: its header, its sections, and the symbols of a cubin's kernels. Every offset, length and count is
 * checked, because the driver loads an image from a bare pointer, without its length. */
#ifndef NOJIT_IMAGE_ELF_H
#define NOJIT_IMAGE_ELF_H

#include "base/cursor.h"
#include "base/error.h"

#define NJ_SECTIONS_MAX 256
#define NJ_SYMBOLS_MAX 65536
#define NJ_SHT_NOBITS 8 /* type of a section without bytes in the file: shared memory */

/* The expected ELF header of a vendor's images, and the names of the rules for them. */
typedef struct {
    uint16_t machine, type;
    const char *machine_name;
    uint8_t abis[2]; /* accepted values of EI_ABIVERSION */
    const char *header, *abi, *segments, *sections, *names, *symbols;
} nj_elf_kind;

extern const nj_elf_kind nj_elf_cubin, nj_elf_hsaco;

typedef struct {
    nj_span name;
    nj_span content; /* empty if the section has no bytes in the file */
    uint64_t size;   /* sh_size, also of a section without bytes in the file */
    uint64_t address; /* sh_addr */
    uint32_t type;
    uint32_t link;
    uint32_t info;
} nj_section;

typedef struct {
    const nj_elf_kind *kind;
    nj_span image;
    uint8_t abi;
    uint32_t flags;
    size_t section_count;
    nj_section sections[NJ_SECTIONS_MAX];
} nj_elf;

/* The symbol of a kernel. */
typedef struct {
    nj_span name;
    uint32_t number;  /* index in the symbol table */
    uint16_t section; /* index of its section, below `section_count` */
} nj_symbol;

/* Reads the header and the sections. False with `error` filled (may be NULL) if they break a rule. */
NJ_FOR_BINDING bool nj_elf_read(nj_span image, const nj_elf_kind *kind, nj_elf *elf, nj_error *error);

/* Returns the kind of an image by its header's e_machine; `nj_elf_cubin` unless it is AMD's. */
NJ_FOR_BINDING const nj_elf_kind *nj_elf_kind_of(nj_span image);

/* A symbol table, with entries of NJ_SYMBOL_BYTES, and its string table. */
typedef struct {
    nj_span entries, names;
} nj_symbols;

enum { NJ_SYMBOL_BYTES = 24 };

/* Finds the symbol table with a section name and type, and its string table. */
bool nj_elf_symbols(const nj_elf *elf, const char *section, uint32_t type, nj_symbols *symbols, nj_error *error);

/* Reads the name of a symbol. */
bool nj_elf_name(const nj_elf *elf, const nj_symbols *symbols, const unsigned char *entry, nj_span *name, nj_error *error);

/* Returns the section whose name is `prefix` followed by `rest`; NULL if there is none. */
const nj_section *nj_elf_find(const nj_elf *elf, const char *prefix, nj_span rest);

/* Reads the symbols of a cubin's kernels and checks that each kernel has a section of its own. Returns the number of kernels, or -1 with
 * `error` filled (may be NULL) if a rule is broken. */
int nj_elf_kernels(const nj_elf *elf, nj_symbol kernels[NJ_SECTIONS_MAX], nj_error *error);

/* True if `whole` is `prefix` followed by `rest`. */
static inline bool nj_span_joins(nj_span whole, const char *prefix, nj_span rest)
{
    size_t length = strlen(prefix);
    return whole.size == length + rest.size && memcmp(whole.at, prefix, length) == 0 &&
           memcmp(whole.at + length, rest.at, rest.size) == 0;
}

#endif
