/* Limits that a reader of JSON checks before it allocates memory (docs/bundle-format.md, chapter 9). */
#ifndef NOJIT_JSON_LIMITS_H
#define NOJIT_JSON_LIMITS_H

enum {
    /* a few kilobytes of zstd can decompress to many times these limits */
    NJ_JSON_BYTES_MAX = 2 << 20,
    NJ_JSON_COMMAS_MAX = 1 << 16,
    NJ_JSON_DIGITS_MAX = 100, /* digits of an integer */
    NJ_JSON_DEPTH_MAX = 32,   /* valid documents nest at most 22 deep */
    NJ_TEXT_MAX = 8192,       /* characters of a text */
    NJ_NAME_MAX = 200,        /* characters of a name */
    NJ_POOL_MAX = 32768,      /* entries of a pool of a table */
};

#endif
