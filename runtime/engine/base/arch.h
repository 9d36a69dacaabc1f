/* Decides which device runs which image, by the rules of docs/bundle-format.md, chapter 5. */
#ifndef NOJIT_BASE_ARCH_H
#define NOJIT_BASE_ARCH_H

#include "base/error.h"
#include "base/span.h"

/* The number of an NVIDIA arch is its compute capability without the dot, 90 for 9.0; of an AMD arch its digits, 942 for gfx942. Every
 * compute capability is below NJ_GFX_FIRST. */
enum { NJ_GFX_FIRST = 900 };

static inline bool nj_is_gfx(int number)
{
    return number >= NJ_GFX_FIRST;
}

/* Returns the number of threads of a warp. AMD calls it a wavefront; Triton compiles for 64 threads before gfx10 and for 32 since. */
static inline unsigned int nj_warp_threads(int number)
{
    return nj_is_gfx(number) && number < 1000 ? 64 : 32;
}

/* Spells the arch of a device: `sm_90`, `gfx942`. */
nj_text nj_arch_spell(int number);

/* The architecture that an image was assembled for. */
typedef struct {
    int number;
    char suffix; /* 'a': runs on exactly this chip; 'f': on its family; 0: on its major version (AMD: on exactly this chip) */
} nj_image_arch;

/* Reads an image arch such as `sm_90a` or `gfx942`; false if the text is none. An image arch without a suffix is also a device's arch. */
NJ_FOR_BINDING bool nj_image_arch_take(nj_span text, nj_image_arch *image);

/* Reads an image arch of a validated index. */
nj_image_arch nj_image_arch_read(nj_span text);

/* Rates how well such images fit a device of an arch (90 for 9.0). The best are images of exactly the chip, then of its family, then of
 * the nearest minor version. Returns 0 if they do not run there. */
NJ_FOR_BINDING int nj_image_fit(nj_image_arch image, int capability);

/* A member of a family of architectures. A family has the name of one of its members. */
typedef struct {
    int name, member;
} nj_family_member;

/* Returns the pair of the table of families at an index; both numbers are 0 past the end. */
NJ_FOR_BINDING nj_family_member nj_image_family(size_t number);

/* Returns the chip at an index of all chips that run no images of other chips of their major version; 0 past the end. */
NJ_FOR_BINDING int nj_lone_arch(size_t number);

#endif
