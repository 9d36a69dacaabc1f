/* Which device runs which image. docs/bundle-format.md, chapter 5, gives the rules. */
#ifndef NOJIT_BASE_ARCH_H
#define NOJIT_BASE_ARCH_H

#include "base/error.h"
#include "base/span.h"

/* The numbers of archs: of NVIDIA's the compute capability without the dot, 90 for 9.0; of AMD's the digits, 942 for gfx942. No compute
 * capability is as high as AMD's first. */
enum { NJ_GFX_FIRST = 900 };

static inline bool nj_is_gfx(int number)
{
    return number >= NJ_GFX_FIRST;
}

/* Threads of a warp; AMD calls it wavefront, and Triton compiles for those of 64 before gfx10 and for those of 32 from there on. */
static inline unsigned int nj_warp_threads(int number)
{
    return nj_is_gfx(number) && number < 1000 ? 64 : 32;
}

/* Spells the arch of a device: `sm_90`, `gfx942`. */
nj_text nj_arch_spell(int number);

/* The architecture that an image was assembled for. */
typedef struct {
    int number;
    char suffix; /* 'a': exactly this chip; 'f': its family; 0: the same major version, of AMD's exactly this chip */
} nj_image_arch;

/* Reads an image arch, `sm_90a` or `gfx942`; false if a text names none. Without a suffix, it is the arch of a device. */
NJ_FOR_BINDING bool nj_image_arch_take(nj_span text, nj_image_arch *image);

/* Reads an image arch of an index, which was checked. */
nj_image_arch nj_image_arch_read(nj_span text);

/* How well such images fit a device of an arch (90 for 9.0), the higher the better: those of exactly the chip, then of
 * its family, then of the nearest minor version. 0 if they do not run there. */
NJ_FOR_BINDING int nj_image_fit(nj_image_arch image, int capability);

/* A member of a family of architectures, which is named after one, by number; both are 0 behind the last. */
typedef struct {
    int name, member;
} nj_family_member;

NJ_FOR_BINDING nj_family_member nj_image_family(size_t number);

/* A chip that shares no images with others of its major version, by number; 0 behind the last. */
NJ_FOR_BINDING int nj_lone_arch(size_t number);

#endif
