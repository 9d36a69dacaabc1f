/* Read a bundle while the system interrupts reads, reads less than asked, or fails; and go on once it works again. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nojit.h"

/* The linker has the engine call these (--wrap). */
ssize_t __real_pread(int file, void *to, size_t size, off_t start);
int __real_fstat(int file, struct stat *status);
void *__real_dlopen(const char *name, int flags);

enum { SHORT_BYTES = 7, READS_MAX = 100 };

static enum { WORK, INTERRUPT, READ_LESS, FAIL, END_EARLY } what;
static long reads, failing; /* the number of a read that fails or finds the file's end; 0: none does */
static int interrupted, no_status, no_zstd;

ssize_t __wrap_pread(int file, void *to, size_t size, off_t start)
{
    interrupted = what == INTERRUPT && !interrupted;
    if (interrupted) {
        errno = EINTR;
        return -1;
    }
    reads++;
    if (what == FAIL && reads == failing) {
        errno = EIO;
        return -1;
    }
    if (what == END_EARLY && reads == failing) {
        return 0;
    }
    return __real_pread(file, to, what == READ_LESS && size > SHORT_BYTES ? SHORT_BYTES : size, start);
}

int __wrap_fstat(int file, struct stat *status)
{
    if (no_status) {
        errno = EOVERFLOW;
        return -1;
    }
    return __real_fstat(file, status);
}

void *__wrap_dlopen(const char *name, int flags)
{
    return no_zstd && name != NULL && strstr(name, "zstd") != NULL ? NULL : __real_dlopen(name, flags);
}

/* Reads each kind of part once: header, index, attachment, section, image. */
static nj_code use(const char *path, nj_error *error)
{
    memset(error, 0, sizeof *error);
    nj_bundle *bundle = nj_bundle_open(path, NULL, error);
    if (bundle == NULL) {
        return error->code;
    }
    size_t size = 0;
    const char *notes = nj_bundle_attachment(bundle, "notes.txt", &size, error);
    nj_kernel *kernel = notes == NULL ? NULL : nj_bundle_kernel(bundle, "add", error);
    nj_code code = kernel == NULL ? error->code : (nj_code)nj_kernel_load(kernel, 0, error);
    if (code == NJ_OK && (size != 5 || memcmp(notes, "notes", size) != 0)) {
        fprintf(stderr, "an attachment of %zu bytes\n", size);
        code = NJ_ERROR_INTEGRITY;
    }
    nj_bundle_close(bundle);
    return code;
}

/* Expects an outcome; shows what came instead. */
static int expect(const char *when, nj_code expected, const char *call, const char *path)
{
    nj_error error;
    nj_code code = use(path, &error);
    if (code != expected || (call != NULL && strcmp(error.call, call) != 0)) {
        fprintf(stderr, "%s, read %ld: %d %s: %s, got %s - at %s\n", when, reads, (int)code, error.call, error.what, error.got, error.where);
        return 1;
    }
    return 0;
}

int main(int count, char **words)
{
    if (count != 2) {
        return 2;
    }
    const char *path = words[1];
    int wrong = 0;
    no_zstd = 1;
    wrong += expect("without libzstd", NJ_ERROR_NEEDS, NULL, path);
    no_zstd = 0;
    no_status = 1;
    wrong += expect("without fstat", NJ_ERROR_SYSTEM, "fstat", path);
    no_status = 0;
    what = INTERRUPT;
    wrong += expect("interrupted", NJ_OK, NULL, path);
    what = READ_LESS;
    wrong += expect("a few bytes at a time", NJ_OK, NULL, path);
    what = WORK;
    reads = 0;
    wrong += expect("as usual", NJ_OK, NULL, path);
    long all = reads;
    for (failing = 1; failing <= all && all < READS_MAX; failing++) {
        what = FAIL;
        reads = 0;
        wrong += expect("a failing read", NJ_ERROR_SYSTEM, "pread", path);
        what = END_EARLY;
        reads = 0;
        wrong += expect("the file's end", NJ_ERROR_INTEGRITY, NULL, path);
    }
    what = WORK;
    wrong += expect("afterwards", NJ_OK, NULL, path);
    printf("%ld parts read, %d wrong\n", all, wrong);
    return wrong != 0;
}
