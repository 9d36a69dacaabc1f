/* What the fake reads out of a cubin: enough to check a launch against the machine code it is for. */
#ifndef FAKECUDA_CUBIN_H
#define FAKECUDA_CUBIN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CUBIN_PARAMS_MAX = 512, CUBIN_KERNELS_MAX = 16, CUBIN_SYMBOL_MAX = 256 };

struct cubin_kernel {
    char symbol[CUBIN_SYMBOL_MAX];
    unsigned params;
    /* in ordinal order, bytes from the start of the parameter block */
    uint16_t offsets[CUBIN_PARAMS_MAX];
    uint16_t sizes[CUBIN_PARAMS_MAX];
    /* zero where the image does not say */
    uint32_t reqntid[3];
    uint32_t cluster[3];
    /* of its own: without the system's, which from sm_90 up is in the section too and counts against no limit */
    uint32_t static_shared;
};

struct cubin {
    unsigned sm;
    /* 'a' exactly this chip, 0 the same major version; a family image (100f) cannot be told from a plain one */
    char suffix;
    unsigned kernels;
    struct cubin_kernel kernel[CUBIN_KERNELS_MAX];
};

/* Numbers of an ELF file, at any address. */
static inline uint32_t u32(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t u64(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Read the hsaco at `image`, of AMD's, whose `sm` is 942 for gfx942; return 0 if it is none. */
int hsaco_read(const unsigned char *image, struct cubin *out);

/* Read the cubin or hsaco at `image`, which like the driver's call has no length; return 0 if it is none. */
int cubin_read(const void *image, struct cubin *out);

/* Say whether a device of compute capability `device` (90 for 9.0) runs it. */
int cubin_runs_on(const struct cubin *cubin, unsigned device);

#endif
