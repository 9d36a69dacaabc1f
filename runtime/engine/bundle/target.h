/* Which device runs which image. docs/architecture.md says where the rules come from. */
#ifndef NOJIT_BUNDLE_TARGET_H
#define NOJIT_BUNDLE_TARGET_H

#include "base/internal.h"
#include "base/span.h"

/* The architecture that an image was assembled for. */
typedef struct {
    int number;  /* compute capability without the dot: 90 for 9.0 */
    char suffix; /* 'a': exactly this chip; 'f': its family; 0: the same major version */
} nj_image_arch;

/* Reads an image arch of an index, `sm_90a`. */
NJ_INTERNAL nj_image_arch nj_image_arch_read(nj_span text);

/* How well such images fit a device of a compute capability (90 for 9.0), the higher the better: those of exactly the chip, then of
 * its family, then of the nearest minor version. 0 if they do not run there. */
NJ_INTERNAL int nj_image_fit(nj_image_arch image, int capability);

/* A member of a family of architectures, which is named after one, by number; both are 0 behind the last. */
typedef struct {
    int name, member;
} nj_family_member;

NJ_INTERNAL nj_family_member nj_image_family(size_t number);

/* A chip that shares no images with others of its major version, by number; 0 behind the last. */
NJ_INTERNAL int nj_lone_arch(size_t number);

#endif
