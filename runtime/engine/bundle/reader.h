/* One open bundle: its index at once, sections and images when they are asked for. Each part is hashed before it is decompressed, and
 * decompressed before it is parsed. Safe to use from several threads; no lock is held while a callback runs. */
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

    /* Decompresses one whole frame, which nj_frame_check has passed, into exactly `raw_bytes`, at least one; false with `error` filled. */
    bool (*decompress)(void *context, nj_span frame, void *raw, size_t raw_bytes, nj_error *error);

    /* Judges a bundle by its digest before anything of it is decompressed or parsed; false with `error` filled. NULL allows all. */
    bool (*verify)(void *context, const char *digest, nj_error *error);
} nj_reader_calls;

/* Decompressed images of one group. */
typedef struct nj_group_bytes nj_group_bytes;

typedef struct {
    nj_reader_calls calls;
    nj_file file;
    nj_index index;
    unsigned char *index_raw;
    char digest[NJ_SHA256_CHARS + 1]; /* of the index as stored, which pins the rest */
    uint64_t index_bytes, index_raw_bytes;
    uint64_t *section_starts, *payload_starts; /* of each kernel, in the file */
    uint64_t attachments_start;                /* of the first one, in the file */
    pthread_mutex_t lock;                      /* guards `last` */
    nj_group_bytes *last;                      /* the group that was read last: neighbours are often asked for one after the other */
} nj_reader;

/* The section of a kernel, decompressed. */
typedef struct {
    unsigned char *raw;
    nj_span table, placement;
} nj_section_bytes;

/* An image of a bundle; holds its group. Images of one group and start are equal, whichever bundles hold them. */
typedef struct {
    nj_span content;
    nj_group_bytes *group;
    unsigned char group_sha256[NJ_SHA256_BYTES]; /* of the group as stored */
    uint64_t start;                              /* in the decompressed group */
} nj_image_bytes;

/* Checks a frame and decompresses it into `raw`, which has room for `raw_bytes`. */
NJ_FOR_BINDING bool nj_frame_read(const nj_reader_calls *calls, nj_span frame, void *raw, uint64_t raw_bytes, nj_error *error);

/* Opens a file, or takes memory as one (`file` then has it), and reads the header and the index. False with `error` filled (may be
 * NULL), as in all of these; its place is within the bundle. To be closed if this succeeds. */
NJ_FOR_BINDING bool nj_reader_open(nj_reader *reader, const char *path, const nj_reader_calls *calls, nj_error *error);
bool nj_reader_take(nj_reader *reader, nj_span memory, const nj_reader_calls *calls, nj_error *error);
NJ_FOR_BINDING void nj_reader_close(nj_reader *reader);

/* Finds a kernel by its name; -1 if there is none. */
NJ_FOR_BINDING int nj_reader_find(const nj_reader *reader, nj_span name);

/* Reads the index once more and checks its digest. */
NJ_FOR_BINDING bool nj_reader_check_index(const nj_reader *reader, nj_error *error);

/* Reads the section of a kernel, whose `raw` is the caller's to free. */
NJ_FOR_BINDING bool nj_reader_section(const nj_reader *reader, size_t kernel, nj_section_bytes *section, nj_error *error);

/* Finds an attachment by its name; -1 if there is none. */
NJ_FOR_BINDING int nj_reader_find_attachment(const nj_reader *reader, nj_span name);

/* Reads an attachment by its number into `raw`, which has room for its raw bytes. */
NJ_FOR_BINDING bool nj_reader_attachment(const nj_reader *reader, size_t number, void *raw, nj_error *error);

/* Reads an image by its number, which is below those of `placement`, the kernel's. */
NJ_FOR_BINDING bool nj_reader_image(nj_reader *reader, size_t kernel, const nj_placement *placement, size_t number, nj_image_bytes *image,
                                 nj_error *error);
NJ_FOR_BINDING void nj_image_drop(nj_image_bytes *image);

#endif
