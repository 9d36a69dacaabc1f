/* The handle of an open bundle. */
#ifndef NOJIT_API_BUNDLE_H
#define NOJIT_API_BUNDLE_H

#include "base/arch.h"
#include "base/struct_size.h"
#include "bundle/reader.h"

#include <stdatomic.h>

struct nj_bundle {
    nj_options options;
    char *path; /* NULL for memory */
    nj_reader reader;
    nj_image_arch image_arch;
    int arch;                    /* the value of ``arch`` in expressions */
    char *texts;                 /* owns all names below, each NUL-terminated */
    const char *name, *version, *arch_name, *image_arch_name;
    const char **kernel_names, **attachment_names;
    _Atomic(nj_kernel *) *kernels; /* open kernels, by number; NULL until first requested */
    _Atomic(void *) *attachments;  /* bytes of attachments, by number; NULL until first requested */
};

/* Prepends the bundle's path to an error's place, unless the bundle lies in memory. Returns false. */
bool nj_within_bundle(const nj_bundle *bundle, nj_error *error);

/* Applies NOJIT_TRUST and nj_options.verify of the bundle `context` to its digest. False with `error` filled. */
bool nj_bundle_verify(void *context, const char *digest, nj_error *error);

/* Passes an event to nj_options.log, if that is set. Fills in the event's path, digest and duration since `began_ns`. */
void nj_bundle_tell(const nj_bundle *bundle, nj_event event, uint64_t began_ns);
uint64_t nj_now_ns(void);

#endif
