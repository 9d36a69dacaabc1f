/* Decides whether a bundle may be opened, by NOJIT_TRUST and nj_options.verify. */
#include "api/bundle.h"

#include "bundle/header.h"
#include "bundle/limits.h"

#include <stdlib.h>

/* Reads the signed statement beside a bundle into new memory; NULL if the file is missing, too large or cannot be read. */
static void *read_statement(const char *path, size_t *size)
{
    size_t length = strlen(path), ending = strlen(NJ_SUFFIX);
    nj_file file = {.descriptor = -1};
    void *read = NULL;
    char *name = malloc(length + sizeof NJ_STATEMENT_SUFFIX);
    if (name == NULL) {
        return NULL;
    }
    length -= length >= ending && strcmp(path + length - ending, NJ_SUFFIX) == 0 ? ending : 0;
    memcpy(name, path, length);
    memcpy(name + length, NJ_STATEMENT_SUFFIX, sizeof NJ_STATEMENT_SUFFIX);
    if (nj_file_open(name, &file, NULL) && file.size <= NJ_STATEMENT_BYTES_MAX) {
        read = malloc((size_t)file.size + 1);
        if (read != NULL && !nj_file_read(&file, 0, (size_t)file.size, read, NULL)) {
            free(read);
            read = NULL;
        }
    }
    *size = read == NULL ? 0 : (size_t)file.size;
    nj_file_close(&file);
    free(name);
    return read;
}

static bool ask_verifier(const nj_bundle *it, const char *digest, nj_error *error)
{
    size_t size = 0;
    void *statement = it->path == NULL ? NULL : read_statement(it->path, &size);
    nj_claim claim = {sizeof claim, it->path, digest, statement, size};
    bool allowed = it->options.verify(it->options.user, &claim) == 0;
    free(statement);
    return allowed || nj_fail(error, NJ_ERROR_TRUST, "", "nj_options.verify refuses the bundle");
}

bool nj_bundle_verify(void *context, const char *digest, nj_error *error)
{
    const nj_bundle *it = context;
    const char *policy = getenv("NOJIT_TRUST");
    if (policy != NULL && strcmp(policy, "any") != 0 && strcmp(policy, "signed") != 0) {
        nj_note_failure(error, NJ_ERROR_TRUST, nj_quote((nj_span){(const unsigned char *)policy, strlen(policy)}).text,
                        "expected any or signed");
        return nj_at(error, "NOJIT_TRUST");
    }
    if (it->options.verify != NULL) {
        return ask_verifier(it, digest, error);
    }
    return policy == NULL || strcmp(policy, "any") == 0 ||
           nj_fail(error, NJ_ERROR_TRUST, "none", "expected nj_options.verify to be set, which NOJIT_TRUST=signed needs");
}
