#include "base/sized.h"

bool nj_sized_take_other(const nj_sized *it, const void *theirs, size_t size, void *ours, nj_error *error)
{
    if (size < it->least) {
        return nj_refuse_argument(error, it->argument, nj_format("%zu", size).text, "expected %s to have its size set", it->name);
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

void nj_sized_fill(void *theirs, const void *ours, size_t size)
{
    size_t room;
    memcpy(&room, theirs, sizeof room);
    if (room > size) {
        memset((unsigned char *)theirs + size, 0, room - size);
    }
    memcpy(theirs, ours, room < size ? room : size);
}
