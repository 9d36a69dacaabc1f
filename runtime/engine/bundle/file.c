/* for open, fstat and pread */
#define _POSIX_C_SOURCE 200809L

#include "bundle/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns the kind of a file that is no regular file, as text. */
static const char *spell_kind(mode_t mode)
{
    return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a FIFO" : S_ISSOCK(mode) ? "a socket" : "a device";
}

static bool check_regular(nj_file *file, nj_error *error)
{
    struct stat status;
    if (fstat(file->descriptor, &status) != 0) {
        return nj_system_failed(error, "fstat", errno);
    }
    file->size = (uint64_t)status.st_size;
    return S_ISREG(status.st_mode) || nj_break(error, "magic", spell_kind(status.st_mode), "expected a regular file");
}

bool nj_file_open(const char *path, nj_file *file, nj_error *error)
{
    /* O_NONBLOCK, because the open of a pipe would block until its other end is open */
    *file = (nj_file){.descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file->descriptor < 0) {
        return nj_system_failed(error, "open", errno);
    }
    if (!check_regular(file, error)) {
        nj_file_close(file);
        return false;
    }
    return true;
}

void nj_file_close(nj_file *file)
{
    if (file->descriptor >= 0) {
        close(file->descriptor);
        file->descriptor = -1;
    }
}

bool nj_file_read(const nj_file *file, uint64_t start, size_t size, void *to, nj_error *error)
{
    size_t done = 0;
    if (file->memory != NULL) {
        done = start >= file->size ? 0 : file->size - start < size ? (size_t)(file->size - start) : size;
        memcpy(to, file->memory + (done == 0 ? 0 : start), done);
    }
    while (file->memory == NULL && done < size) {
        ssize_t got = pread(file->descriptor, (char *)to + done, size - done, (off_t)(start + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return nj_system_failed(error, "pread", errno);
        }
        if (got == 0) {
            break;
        }
        done += (size_t)got;
    }
    return done == size ||
           nj_differ(error, nj_format("%zu", done).text, "expected %zu bytes at %llu", size, (unsigned long long)start);
}
