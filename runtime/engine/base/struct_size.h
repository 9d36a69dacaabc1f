/* Structs of nojit.h that start with their size: a caller may have been compiled with a shorter or a longer one than ours. */
#ifndef NOJIT_BASE_STRUCT_SIZE_H
#define NOJIT_BASE_STRUCT_SIZE_H

#include "base/error.h"

/* The size of a struct up to a member: the least that a caller may set, once newer members follow it. */
#define NJ_END_OF(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))

/* No struct grows to so many bytes: a size above is one that nobody has set. */
#define NJ_SIZED_MAX 4096

/* How a struct of a caller is read or filled. A member that is added starts where the struct ended before, behind its padding. */
typedef struct {
    const char *name; /* for errors */
    size_t ours, least;
    int argument; /* the number of the argument that the struct is; -1 if it is none */
} nj_sized;

/* `nj_sized_take` for other sizes than ours. */
bool nj_sized_take_other(const nj_sized *it, const void *theirs, size_t size, void *ours, nj_error *error);

/* Copies a caller's struct. Members that it is too short for are 0. False with `error` filled where its size was not set, which is
 * easily forgotten and would drop what the caller sets, or where it sets a member that this version does not know. */
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

/* Fills a caller's struct, as far as its size goes; what it has beyond ours is 0, and its size stays. NJ_ERROR_ARGUMENT, with
 * `error` filled (may be NULL), where its size was not set. */
nj_code nj_sized_fill(const nj_sized *it, void *theirs, const void *ours, nj_error *error);

#endif
