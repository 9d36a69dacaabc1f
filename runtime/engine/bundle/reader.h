/* Reads a bundle: the index when it is opened, sections and images on demand. The reader checks the digest of each part before it
 * decompresses it, and decompresses it before it parses it. Thread-safe; no lock is held while a callback runs. */
#ifndef NOJIT_BUNDLE_READER_H
#define NOJIT_BUNDLE_READER_H

#include "base/sha256.h"
#include "bundle/file.h"
#include "bundle/index.h"
#include "bundle/placement.h"

#include <pthread.h>

/* The callbacks of a reader. */
typedef struct {
    void *context;

    /* Decompresses one frame that nj_frame_check accepted into exactly `raw_bytes`, which is at least 1; false with `error` filled. */
    bool (*decompress)(void *context, nj_span frame, void *raw, size_t raw_bytes, nj_error *error);

    /* Accepts or refuses a bundle by its digest, before the index is decompressed; false with `error` filled. NULL accepts all. */
    bool (*verify)(void *context, const char *digest, nj_error *error);
} nj_reader_calls;

/* The decompressed images of one group, with a reference count. */
typedef struct nj_group_bytes nj_group_bytes;

typedef struct {
    nj_reader_calls calls;
    nj_file file;
    nj_index index;
    unsigned char *index_raw;
    char digest[NJ_SHA256_CHARS + 1]; /* digest of the index as stored; the index has the digests of all other parts */
    uint64_t index_bytes, index_raw_bytes;
    uint64_t *section_starts, *payload_starts; /* for each kernel, file offsets of its section and of its groups */
    uint64_t attachments_start;                /* file offset of the first attachment */
    pthread_mutex_t lock;                      /* guards `last` */
    nj_group_bytes *last;                      /* the group read last, cached because the next image is often in the same group */
} nj_reader;

/* The section of a kernel, decompressed. */
typedef struct {
    unsigned char *raw;
    nj_span table, placement;
} nj_section_bytes;

/* An image of a bundle; it keeps its group alive. Two images with the same group digest and start are equal, even in different bundles. */
typedef struct {
    nj_span content;
    nj_group_bytes *group;
    unsigned char group_sha256[NJ_SHA256_BYTES]; /* digest of the group as stored */
    uint64_t start;                              /* offset in the decompressed group */
} nj_image_bytes;

/* Checks a frame and decompresses it into `raw`, which has room for `raw_bytes`. */
NJ_FOR_BINDING bool nj_frame_read(const nj_reader_calls *calls, nj_span frame, void *raw, uint64_t raw_bytes, nj_error *error);

/* Open a bundle in a file or in memory, which must outlive the reader, and read its header and index. All functions here return false
 * with `error` filled (may be NULL); its place is relative to the bundle. The caller closes the reader if this succeeds. */
NJ_FOR_BINDING bool nj_reader_open(nj_reader *reader, const char *path, const nj_reader_calls *calls, nj_error *error);
bool nj_reader_take(nj_reader *reader, nj_span memory, const nj_reader_calls *calls, nj_error *error);
NJ_FOR_BINDING void nj_reader_close(nj_reader *reader);

/* Finds a kernel by its name; -1 if there is none. */
NJ_FOR_BINDING int nj_reader_find(const nj_reader *reader, nj_span name);

/* Reads the index again and checks its digest. */
NJ_FOR_BINDING bool nj_reader_check_index(const nj_reader *reader, nj_error *error);

/* Reads the section of a kernel. The caller frees `section->raw`. */
NJ_FOR_BINDING bool nj_reader_section(const nj_reader *reader, size_t kernel, nj_section_bytes *section, nj_error *error);

/* Finds an attachment by its name; -1 if there is none. */
NJ_FOR_BINDING int nj_reader_find_attachment(const nj_reader *reader, nj_span name);

/* Reads an attachment by its number into `raw`, which has room for its raw bytes. */
NJ_FOR_BINDING bool nj_reader_attachment(const nj_reader *reader, size_t number, void *raw, nj_error *error);

/* Reads the image `number` of a kernel, whose placement is `placement`. The caller calls `nj_image_drop`. */
NJ_FOR_BINDING bool nj_reader_image(nj_reader *reader, size_t kernel, const nj_placement *placement, size_t number, nj_image_bytes *image,
                                 nj_error *error);
NJ_FOR_BINDING void nj_image_drop(nj_image_bytes *image);

#endif
