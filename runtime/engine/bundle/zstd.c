#include "bundle/zstd.h"

#include <dlfcn.h>
#include <pthread.h>

/* The functions of zstd.h that are called; all of them are in every libzstd.so.1. */
static struct {
    size_t (*decompress)(void *to, size_t room, const void *from, size_t size);
    unsigned int (*is_error)(size_t code);
    const char *(*error_name)(size_t code);
} zstd;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what is above and below, until `known` */
static bool known;

static bool find_locked(void)
{
    void *library = known ? NULL : dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library != NULL) {
        *(void **)&zstd.decompress = dlsym(library, "ZSTD_decompress");
        *(void **)&zstd.is_error = dlsym(library, "ZSTD_isError");
        *(void **)&zstd.error_name = dlsym(library, "ZSTD_getErrorName");
        known = zstd.decompress != NULL && zstd.is_error != NULL && zstd.error_name != NULL;
    }
    return known;
}

bool nj_zstd_find(void)
{
    pthread_mutex_lock(&lock);
    bool found = find_locked();
    pthread_mutex_unlock(&lock);
    return found;
}

bool nj_frame_broken(nj_error *error, const char *got)
{
    return nj_differ(error, got, "expected one whole zstd frame");
}

bool nj_zstd_decompress(void *context, nj_span frame, void *raw, size_t raw_bytes, nj_error *error)
{
    (void)context;
    if (!nj_zstd_find()) {
        return nj_lacks(error, "none", "expected libzstd.so.1 to be installed, or nj_options.decompress to be set");
    }
    size_t done = zstd.decompress(raw, raw_bytes, frame.at, frame.size);
    if (zstd.is_error(done)) {
        return nj_frame_broken(error, zstd.error_name(done));
    }
    return done == raw_bytes || nj_differ(error, nj_format("%zu", done).text, "expected %zu decompressed bytes", raw_bytes);
}
