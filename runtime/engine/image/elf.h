/* The ELF side of an image: its header, its sections, and the symbols of a cubin's kernels. No offset, length or count is trusted:
 * the driver that loads the image is given no length to stop at. */
#ifndef NOJIT_IMAGE_ELF_H
#define NOJIT_IMAGE_ELF_H

#include "base/cursor.h"
#include "base/error.h"

#define NJ_SECTIONS_MAX 256
#define NJ_SYMBOLS_MAX 65536
#define NJ_SHT_NOBITS 8 /* a section without bytes in the file: shared memory */

/* The header of one vendor's images, and the names of the rules that they may break. */
typedef struct {
    uint16_t machine, type;
    const char *machine_name;
    uint8_t abis[2]; /* versions of the ABI */
    const char *header, *abi, *segments, *sections, *names, *symbols;
} nj_elf_kind;

extern const nj_elf_kind nj_elf_cubin, nj_elf_hsaco;

typedef struct {
    nj_span name;
    nj_span content; /* empty if the section has no bytes in the file */
    uint64_t size;   /* of one without bytes in the file too */
    uint64_t address; /* where a loaded image has it */
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
    uint32_t number;  /* in the symbol table */
    uint16_t section; /* a number below `section_count` */
} nj_symbol;

/* Reads the sections. False with `error` filled (may be NULL) where a rule is broken. */
NJ_FOR_BINDING bool nj_elf_read(nj_span image, const nj_elf_kind *kind, nj_elf *elf, nj_error *error);

/* Returns the kind that the header of an image names; a cubin's for any that it does not know. */
NJ_FOR_BINDING const nj_elf_kind *nj_elf_kind_of(nj_span image);

/* A table of symbols, each of NJ_SYMBOL_BYTES, and their names. */
typedef struct {
    nj_span entries, names;
} nj_symbols;

enum { NJ_SYMBOL_BYTES = 24 };

/* Finds the symbol table in a section of a name and type, and the names that it points into. */
bool nj_elf_symbols(const nj_elf *elf, const char *section, uint32_t type, nj_symbols *symbols, nj_error *error);

/* Reads the name of a symbol. */
bool nj_elf_name(const nj_elf *elf, const nj_symbols *symbols, const unsigned char *entry, nj_span *name, nj_error *error);

/* Returns the section whose name is `prefix` followed by `rest`; NULL if there is none. */
const nj_section *nj_elf_find(const nj_elf *elf, const char *prefix, nj_span rest);

/* Reads the symbols of kernels and checks that each kernel has a section of its own. Returns the number of kernels, or -1 with
 * `error` filled (may be NULL) where a rule is broken. */
int nj_elf_kernels(const nj_elf *elf, nj_symbol kernels[NJ_SECTIONS_MAX], nj_error *error);

/* Whether `whole` is `prefix` followed by `rest`. */
static inline bool nj_span_joins(nj_span whole, const char *prefix, nj_span rest)
{
    size_t length = strlen(prefix);
    return whole.size == length + rest.size && memcmp(whole.at, prefix, length) == 0 &&
           memcmp(whole.at + length, rest.at, rest.size) == 0;
}

#endif
