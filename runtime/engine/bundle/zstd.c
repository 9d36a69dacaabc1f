#include "bundle/zstd.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

/* The functions of zstd.h that nojit calls. Every libzstd.so.1 has them. */
static struct {
    void *(*make)(void);
    size_t (*drop)(void *decompressor);
    size_t (*decompress)(void *decompressor, void *to, size_t room, const void *from, size_t size);
    unsigned int (*is_error)(size_t code);
    const char *(*error_name)(size_t code);
} zstd;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `zstd` and `known`, which do not change once `known` is true */
static bool known;

/* The decompression context of the last call, for the next call to reuse: it has 160 KB, and a new one costs a page fault for each page. */
static _Atomic(void *) kept;

static bool find_locked(void)
{
    void *library = known ? NULL : dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library != NULL) {
        *(void **)&zstd.make = dlsym(library, "ZSTD_createDCtx");
        *(void **)&zstd.drop = dlsym(library, "ZSTD_freeDCtx");
        *(void **)&zstd.decompress = dlsym(library, "ZSTD_decompressDCtx");
        *(void **)&zstd.is_error = dlsym(library, "ZSTD_isError");
        *(void **)&zstd.error_name = dlsym(library, "ZSTD_getErrorName");
        known = zstd.make != NULL && zstd.drop != NULL && zstd.decompress != NULL && zstd.is_error != NULL && zstd.error_name != NULL;
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
    void *taken = atomic_exchange(&kept, NULL), *decompressor = taken != NULL ? taken : zstd.make();
    if (decompressor == NULL) {
        return nj_no_memory(error);
    }
    size_t done = zstd.decompress(decompressor, raw, raw_bytes, frame.at, frame.size);
    /* frees the context that another thread may have put there meanwhile; NULL is fine */
    (void)zstd.drop(atomic_exchange(&kept, decompressor));
    if (zstd.is_error(done)) {
        return nj_frame_broken(error, zstd.error_name(done));
    }
    return done == raw_bytes || nj_differ(error, nj_format("%zu", done).text, "expected %zu decompressed bytes", raw_bytes);
}
