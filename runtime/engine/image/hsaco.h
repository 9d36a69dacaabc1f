/* Reads hsacos, AMD's ELF images, for the facts of a launch.
 *
 * An ELF note holds metadata of each kernel in MessagePack, by which HIP finds a kernel and lays out its arguments. The hardware launches
 * a kernel by its kernel descriptor, an object `<kernel>.kd` of 64 bytes. LLVM's "User Guide for AMDGPU Backend" documents both: "Code
 * Object V5 Metadata", "Kernel Descriptor", "Header". */
#ifndef NOJIT_IMAGE_HSACO_H
#define NOJIT_IMAGE_HSACO_H

#include "image/elf.h"
#include "image/image_kernel.h"

typedef struct {
    nj_elf elf;
    uint32_t gfx; /* 942 for gfx942 */
    nj_symbols symbols;
    nj_span kernels; /* the metadata from the first kernel's map on; the other kernels' maps follow */
    size_t kernel_count;
} nj_hsaco;

typedef struct {
    nj_image_kernel it;
    uint32_t wave_threads;
} nj_hsaco_kernel;

/* Reads an image without the metadata of its kernels. False with `error` filled (may be NULL) if it breaks a rule. */
bool nj_hsaco_read(nj_span image, nj_hsaco *hsaco, nj_error *error);

/* Takes the next kernel from `rest`, which starts as the image's `kernels`, and checks it. */
bool nj_hsaco_kernel_take(const nj_hsaco *hsaco, nj_cursor *rest, nj_hsaco_kernel *kernel, nj_error *error);

#endif
