/* The handle of an open bundle. */
#ifndef NOJIT_API_BUNDLE_H
#define NOJIT_API_BUNDLE_H

#include "base/arch.h"
#include "base/struct_size.h"
#include "bundle/reader.h"

#include <pthread.h>
#include <stdatomic.h>

struct nj_bundle {
    nj_options options;
    char *path; /* NULL for memory */
    nj_reader reader;
    nj_image_arch image_arch;
    int arch;                    /* what ``arch`` stands for in expressions */
    char *texts;                 /* what names lie in */
    const char *name, *version, *arch_name, *image_arch_name;
    const char **kernel_names, **attachment_names;
    pthread_mutex_t lock;        /* of who adds kernels */
    _Atomic(nj_kernel *) *kernels; /* by number; NULL until they are asked for */
    _Atomic(void *) *attachments;  /* their bytes, by number; likewise */
};

/* Says that an error is within a bundle: its path, unless it lies in memory. False. */
bool nj_within_bundle(const nj_bundle *bundle, nj_error *error);

/* Asks NOJIT_TRUST and the verifier of the bundle `context` about a digest. False with `error` filled. */
bool nj_bundle_verify(void *context, const char *digest, nj_error *error);

/* Tells the log of something that began at `began_ns`. Fills in what the bundle knows itself, and how long it took. */
void nj_bundle_tell(const nj_bundle *bundle, nj_event event, uint64_t began_ns);
uint64_t nj_now_ns(void);

#endif
