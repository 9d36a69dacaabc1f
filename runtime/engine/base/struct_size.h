/* Structs of nojit.h that start with their size, because a caller may be compiled with an older or newer nojit.h than the engine. */
#ifndef NOJIT_BASE_STRUCT_SIZE_H
#define NOJIT_BASE_STRUCT_SIZE_H

#include "base/error.h"

/* The size of a struct up to and including a member: the smallest size of a caller whose nojit.h lacks the members after it. */
#define NJ_END_OF(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))

/* The largest size of a struct. A larger number means that the caller did not set the size. */
#define NJ_SIZED_MAX 4096

/* Describes a sized struct. A new member must start at the struct's previous size, after its padding. */
typedef struct {
    const char *name;   /* its name, for errors */
    size_t ours, least; /* its size here, and the smallest size that a caller may set */
    int argument;       /* number of the argument that the struct is; -1 if it is none */
} nj_sized;

/* Does the work of `nj_sized_take` if the caller's size differs from ours. */
bool nj_sized_take_other(const nj_sized *it, const void *theirs, size_t size, void *ours, nj_error *error);

/* Copies a caller's struct. Members that the caller's struct lacks become 0. False with `error` filled if the caller did not set its size,
 * or set a member that this version does not have. */
static inline bool nj_sized_take(const nj_sized *it, const void *theirs, void *ours, nj_error *error)
{
    size_t size;
    memcpy(&size, theirs, sizeof size);
    if (size == it->ours) {
        memcpy(ours, theirs, size);
        return true;
    }
    return nj_sized_take_other(it, theirs, size, ours, error);
}

/* Fills a caller's struct up to its size, which stays as it is. Members that this version does not have become 0. Returns
 * NJ_ERROR_ARGUMENT with `error` filled (may be NULL) if the caller did not set the size. */
nj_code nj_sized_fill(const nj_sized *it, void *theirs, const void *ours, nj_error *error);

#endif
