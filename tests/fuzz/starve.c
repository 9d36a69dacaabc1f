#include "starve.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

/* by these names the engine calls them */
void *fuzz_malloc(size_t size);
void *fuzz_calloc(size_t count, size_t size);
void *fuzz_realloc(void *before, size_t size);

static struct {
    uint64_t allocations; /* of this input so far */
    uint64_t first, last; /* that fail, counted from 1; none if `first` is 0 */
    bool starved;
} memory;

static bool fails(void)
{
    memory.allocations++;
    bool does = memory.first != 0 && memory.allocations >= memory.first && memory.allocations <= memory.last;
    memory.starved |= does;
    return does;
}

void *fuzz_malloc(size_t size)
{
    return fails() ? NULL : malloc(size);
}

void *fuzz_calloc(size_t count, size_t size)
{
    return fails() ? NULL : calloc(count, size);
}

void *fuzz_realloc(void *before, size_t size)
{
    return fails() ? NULL : realloc(before, size);
}

bool fuzz_is_starved(void)
{
    return memory.starved;
}

void fuzz_expect(bool good, const nj_error *error, bool format)
{
    if (good) {
        return;
    }
    bool memory_alone = memory.starved && error->code == NJ_ERROR_MEMORY;
    if (error->code == NJ_OK || error->what[0] == 0 || (format && !memory_alone && (error->code != NJ_ERROR_FORMAT || error->rule[0] == 0))) {
        abort();
    }
}

static void run(const unsigned char *bytes, size_t size, uint64_t first, uint64_t last)
{
    memory.allocations = 0;
    memory.first = first;
    memory.last = last;
    memory.starved = false;
    fuzz_input(bytes, size);
}

void fuzz_starve_each(const unsigned char *bytes, size_t size)
{
    run(bytes, size, 0, 0);
    for (uint64_t allocations = memory.allocations, first = 1; first <= allocations; first++) {
        run(bytes, size, first, first);
    }
}

/* FNV-1a */
static uint64_t hash_of(const unsigned char *bytes, size_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
    uint64_t hash = hash_of(bytes, size);
    run(bytes, size, 0, 0);
    if (hash % 8 == 0 && memory.allocations > 0) {
        uint64_t first = 1 + hash / 16 % memory.allocations;
        /* that one, or each from there on */
        run(bytes, size, first, hash / 8 % 2 == 0 ? first : UINT64_MAX);
    }
    return 0;
}
