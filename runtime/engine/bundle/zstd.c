#include "bundle/zstd.h"

#include <dlfcn.h>
#include <pthread.h>

/* The functions of zstd.h that are called; all of them are in every libzstd.so.1. */
static struct {
    size_t (*decompress)(void *to, size_t room, const void *from, size_t size);
    unsigned int (*is_error)(size_t code);
    const char *(*error_name)(size_t code);
    size_t (*frame_bytes)(const void *from, size_t size);
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
        *(void **)&zstd.frame_bytes = dlsym(library, "ZSTD_findFrameCompressedSize");
        known = zstd.decompress != NULL && zstd.is_error != NULL && zstd.error_name != NULL && zstd.frame_bytes != NULL;
    }
    return known;
}

static bool find(nj_error *error)
{
    pthread_mutex_lock(&lock);
    bool found = find_locked();
    pthread_mutex_unlock(&lock);
    return found || nj_lacks(error, "none", "expected libzstd.so.1 to be installed, or nj_options.decompress to be set");
}

bool nj_frame_broken(nj_error *error, const char *got)
{
    return nj_differ(error, got, "expected one whole zstd frame and nothing after it");
}

bool nj_zstd_decompress(void *context, nj_span frame, void *raw, size_t raw_bytes, nj_error *error)
{
    (void)context;
    if (!find(error)) {
        return false;
    }
    /* ZSTD_decompress takes several frames, one behind the other */
    size_t own = zstd.frame_bytes(frame.at, frame.size), done = own;
    if (!zstd.is_error(own) && own != frame.size) {
        return nj_frame_broken(error, nj_format("%zu bytes behind it", frame.size - own).text);
    }
    if (!zstd.is_error(own)) {
        done = zstd.decompress(raw, raw_bytes, frame.at, frame.size);
    }
    if (zstd.is_error(done)) {
        return nj_frame_broken(error, zstd.error_name(done));
    }
    return done == raw_bytes || nj_differ(error, nj_format("%zu", done).text, "expected %zu decompressed bytes", raw_bytes);
}
