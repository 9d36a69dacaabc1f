/* nojit's C interface: open a bundle, select a variant, load it and launch it, without Python. */
#ifndef NOJIT_H
#define NOJIT_H

#ifdef __cplusplus
extern "C" {
#endif

#define NOJIT_VERSION_MAJOR 0
#define NOJIT_VERSION_MINOR 1

#if defined(__GNUC__)
#define NJ_API __attribute__((visibility("default")))
#else
#define NJ_API
#endif

/* Kinds of failure; docs/runtime.md lists the Python exceptions of the same names. */
typedef enum nj_code {
    NJ_OK = 0,
    NJ_ERROR_FORMAT = 1,    /* bytes break a rule of the bundle format */
    NJ_ERROR_INTEGRITY = 2, /* bytes are not those that were built */
    NJ_ERROR_DRIVER = 3,    /* a call of the CUDA driver failed, or there is no driver */
    NJ_ERROR_MEMORY = 4,    /* no memory is left */
    NJ_ERROR_ARGUMENT = 5,  /* a call passes what the kernel does not take */
    NJ_ERROR_SYSTEM = 6,    /* a system call failed: `system_code` is its errno */
    NJ_ERROR_NEEDS = 10,    /* something that is not installed is needed: `what` says what to install or set */
} nj_code;

/* Why a function failed: what was expected, what was found instead, and where. Texts end with a 0, and are cut where they
 * are too long. */
typedef struct nj_error {
    nj_code code;
    int argument;    /* of NJ_ERROR_ARGUMENT: which of the call's; -1: `where` says which, or the call as a whole */
    int driver_code; /* of NJ_ERROR_DRIVER: its CUresult, whose name is `got`; -1 without a driver */
    int system_code; /* of NJ_ERROR_SYSTEM: its errno */
    char call[32];   /* of NJ_ERROR_DRIVER and NJ_ERROR_SYSTEM: the function that failed; else empty */
    char rule[32];   /* of NJ_ERROR_FORMAT: the rule's name in docs/bundle-format.md; else empty */
    char what[384];
    char got[384];   /* empty if that says nothing */
    char where[640]; /* empty if there is no such place */
    char reserved[48];
} nj_error;

/* Returns the version of the library, major * 1000 + minor. */
NJ_API int nj_version(void);

#ifdef __cplusplus
}
#endif

#endif
