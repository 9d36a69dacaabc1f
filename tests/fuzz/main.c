/* Stand in for libFuzzer where there is no clang: run a target over files, and over mutations of them.
 *
 *     TARGET [--starve] [--mutations N] [--seed S] FILE...
 *
 * With --starve each file is run once for each of its allocations, which fails. Each mutation starts from a file, and overwrites, cuts, repeats or swaps a few of its bytes. A crash names its seed and number:
 * the sequence is the same on every machine. */
#include "starve.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

enum { BYTES_MAX = 1 << 20, CHANGES_MAX = 6 };

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below == 0 ? 0 : state % below;
}

static void overwrite(unsigned char *bytes, size_t size)
{
    static const uint64_t numbers[] = {0, 1, 7, 8, 24, 63, 64, 255, 256, 65535, 1u << 31, UINT32_MAX, 1ull << 63, UINT64_MAX - 63, UINT64_MAX};
    size_t width = (size_t)1 << draw(4), at = (size_t)draw(size) / width * width;
    uint64_t number = draw(4) == 0 ? draw(UINT64_MAX) : numbers[draw(sizeof numbers / sizeof *numbers)];
    memcpy(bytes + at, &number, at + width > size ? size - at : width);
}

static size_t mutate(unsigned char *bytes, size_t size)
{
    for (uint64_t changes = 1 + draw(CHANGES_MAX); changes > 0 && size > 0; changes--) {
        size_t at = (size_t)draw(size), length = (size_t)draw(size - at < 64 ? size - at : 64);
        switch (draw(5)) {
        case 0:
            size = draw(8) == 0 ? at : size;
            break;
        case 1: /* take bytes out */
            memmove(bytes + at, bytes + at + length, size - at - length);
            size -= length;
            break;
        case 2: /* say bytes twice */
            if (size + length <= BYTES_MAX) {
                memmove(bytes + at + length, bytes + at, size - at);
                size += length;
            }
            break;
        case 3: {
            unsigned char kept = bytes[at];
            size_t other = (size_t)draw(size);
            bytes[at] = bytes[other];
            bytes[other] = kept;
            break;
        }
        default: overwrite(bytes, size);
        }
    }
    return size;
}

static size_t read_file(const char *path, unsigned char *bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    size_t size = fread(bytes, 1, BYTES_MAX, file);
    fclose(file);
    return size;
}

/* Runs one input in memory of its own size, so that a sanitizer sees each byte that is read behind its end. */
static void run(const unsigned char *bytes, size_t size, bool starve)
{
    unsigned char *exact = malloc(size);
    memcpy(exact, bytes, size);
    LLVMFuzzerTestOneInput(exact, size);
    if (starve) {
        fuzz_starve_each(exact, size);
    }
    free(exact);
}

int main(int count, char **words)
{
    static unsigned char original[BYTES_MAX], bytes[BYTES_MAX];
    unsigned long mutations = 0, seed = 1, ran = 0;
    bool starve = false;
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--mutations") == 0 && i + 1 < count) {
            mutations = strtoul(words[++i], NULL, 10);
            continue;
        }
        if (strcmp(words[i], "--seed") == 0 && i + 1 < count) {
            seed = strtoul(words[++i], NULL, 10);
            continue;
        }
        if (strcmp(words[i], "--starve") == 0) {
            starve = true;
            continue;
        }
        size_t size = read_file(words[i], original);
        run(original, size, starve);
        ran++;
        state = 0x9e3779b97f4a7c15ull * (seed + 1) + (uint64_t)i;
        for (unsigned long n = 0; n < mutations; n++) {
            memcpy(bytes, original, size);
            run(bytes, mutate(bytes, size), false);
            ran++;
        }
    }
    printf("%lu inputs\n", ran);
    return 0;
}
