#include "base/struct_size.h"

/* Checks that a caller has set the size of its struct. */
static bool check_size(const nj_sized *it, size_t size, nj_error *error)
{
    return (size >= it->least && size <= NJ_SIZED_MAX) ||
           nj_refuse_argument(error, it->argument, nj_format("%zu", size).text, "expected %s to have its size set", it->name);
}

bool nj_sized_take_other(const nj_sized *it, const void *theirs, size_t size, void *ours, nj_error *error)
{
    if (!check_size(it, size, error)) {
        return false;
    }
    for (size_t i = it->ours; i < size; i++) {
        if (((const unsigned char *)theirs)[i] != 0) {
            return nj_refuse_argument(error, it->argument, nj_format("%zu bytes", size).text,
                                      "expected %s to set only what this version knows, %zu bytes", it->name, it->ours);
        }
    }
    memset(ours, 0, it->ours);
    memcpy(ours, theirs, size < it->ours ? size : it->ours);
    return true;
}

nj_code nj_sized_fill(const nj_sized *it, void *theirs, const void *ours, nj_error *error)
{
    size_t size;
    memcpy(&size, theirs, sizeof size);
    if (!check_size(it, size, error)) {
        return NJ_ERROR_ARGUMENT;
    }
    if (size > it->ours) {
        memset((unsigned char *)theirs + it->ours, 0, size - it->ours);
    }
    memcpy((unsigned char *)theirs + sizeof size, (const unsigned char *)ours + sizeof size,
           (size < it->ours ? size : it->ours) - sizeof size);
    return NJ_OK;
}
