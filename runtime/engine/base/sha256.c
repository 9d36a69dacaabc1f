#include "base/sha256.h"

#include <stdint.h>

/* A test defines NJ_SHA256_PLAIN to hash without the processor's SHA instructions. */
#if defined(__x86_64__) && !defined(NJ_SHA256_PLAIN)
#define HAS_INSTRUCTIONS
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#endif

enum { BLOCK_BYTES = 64, LENGTH_BYTES = 8 };

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

/* Computes one round. The caller rotates the names of the state's words instead of moving the words. */
static inline void one_round(uint32_t a, uint32_t b, uint32_t c, uint32_t *d, uint32_t e, uint32_t f, uint32_t g, uint32_t *h, uint32_t word)
{
    *h += (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + (g ^ (e & (f ^ g))) + word;
    *d += *h;
    *h += (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) | (c & (a | b)));
}

/* Computes the 64 words of a block's message schedule, each plus its round's constant. */
static void schedule(const unsigned char *block, uint32_t sums[64])
{
    uint32_t words[64];
    for (int i = 0; i < 16; i++) {
        const unsigned char *at = block + 4 * i;
        words[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
        sums[i] = words[i] + constants[i];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t one = words[i - 15], two = words[i - 2];
        words[i] = words[i - 16] + (rotate(one, 7) ^ rotate(one, 18) ^ one >> 3) + words[i - 7] +
                   (rotate(two, 17) ^ rotate(two, 19) ^ two >> 10);
        sums[i] = words[i] + constants[i];
    }
}

static void compress_plainly(uint32_t state[8], const unsigned char *blocks, size_t count)
{
    for (; count > 0; count--, blocks += BLOCK_BYTES) {
        uint32_t sums[64], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
        schedule(blocks, sums);
        for (const uint32_t *at = sums; at < sums + 64; at += 8) {
            one_round(a, b, c, &d, e, f, g, &h, at[0]);
            one_round(h, a, b, &c, d, e, f, &g, at[1]);
            one_round(g, h, a, &b, c, d, e, &f, at[2]);
            one_round(f, g, h, &a, b, c, d, &e, at[3]);
            one_round(e, f, g, &h, a, b, c, &d, at[4]);
            one_round(d, e, f, &g, h, a, b, &c, at[5]);
            one_round(c, d, e, &f, g, h, a, &b, at[6]);
            one_round(b, c, d, &e, f, g, h, &a, at[7]);
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    }
}

#ifdef HAS_INSTRUCTIONS
#define SHA_TARGET __attribute__((target("sha,sse4.1,ssse3")))

/* Computes four rounds on the two halves of the state; `words` holds four words of the message schedule. */
SHA_TARGET static inline void four_rounds(__m128i *abef, __m128i *cdgh, __m128i words, int round)
{
    __m128i sum = _mm_add_epi32(words, _mm_loadu_si128((const __m128i *)&constants[round]));
    *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, sum);
    *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32(sum, 0x0e));
}

/* Returns the next four words of the message schedule, from the last sixteen. */
SHA_TARGET static inline __m128i next_words(__m128i a, __m128i b, __m128i c, __m128i d)
{
    __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(a, b), _mm_alignr_epi8(d, c, 4));
    return _mm_sha256msg2_epu32(sum, d);
}

/* Hashes blocks with the SHA instructions, six times as fast as without them. */
SHA_TARGET static void compress_by_instructions(uint32_t state[8], const unsigned char *blocks, size_t count)
{
    const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i dcba = _mm_loadu_si128((const __m128i *)state), hgfe = _mm_loadu_si128((const __m128i *)(state + 4));
    __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1), efgh = _mm_shuffle_epi32(hgfe, 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
    for (; count > 0; count--, blocks += BLOCK_BYTES) {
        __m128i words[4], abef_before = abef, cdgh_before = cdgh;
        for (int i = 0; i < 4; i++) {
            words[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(blocks + 16 * i)), order);
            four_rounds(&abef, &cdgh, words[i], 4 * i);
        }
        for (int round = 16; round < 64; round += 4) {
            __m128i next = next_words(words[0], words[1], words[2], words[3]);
            words[0] = words[1];
            words[1] = words[2];
            words[2] = words[3];
            words[3] = next;
            four_rounds(&abef, &cdgh, next, round);
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

/* True if the processor has the SHA instructions. Runs CPUID once, because in a virtual machine it takes as long as hashing some
 * kilobytes. Every processor with SHA also has SSE4.1. */
static bool has_instructions(void)
{
    enum { NOT_ASKED, LACKS, HAS };
    static atomic_int known = NOT_ASKED;
    int state = atomic_load_explicit(&known, memory_order_relaxed);
    if (state == NOT_ASKED) {
        unsigned int a, b, c, d;
        state = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA) != 0 ? HAS : LACKS;
        atomic_store_explicit(&known, state, memory_order_relaxed);
    }
    return state == HAS;
}
#endif

static void compress(uint32_t state[8], const unsigned char *blocks, size_t count)
{
#ifdef HAS_INSTRUCTIONS
    if (has_instructions()) {
        compress_by_instructions(state, blocks, count);
        return;
    }
#endif
    compress_plainly(state, blocks, count);
}

static void put_big_endian(unsigned char *to, uint64_t number, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, number >>= 8) {
        to[i] = (unsigned char)number;
    }
}

void nj_sha256(nj_span bytes, unsigned char digest[NJ_SHA256_BYTES])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    size_t whole = bytes.size / BLOCK_BYTES, rest = bytes.size % BLOCK_BYTES;
    unsigned char last[2 * BLOCK_BYTES] = {0};
    size_t blocks = rest < BLOCK_BYTES - LENGTH_BYTES ? 1 : 2;
    if (rest > 0) {
        memcpy(last, bytes.at + whole * BLOCK_BYTES, rest);
    }
    last[rest] = 0x80;
    put_big_endian(last + blocks * BLOCK_BYTES - LENGTH_BYTES, 8 * (uint64_t)bytes.size, LENGTH_BYTES);
    compress(state, bytes.at, whole);
    compress(state, last, blocks);
    for (int i = 0; i < 8; i++) {
        put_big_endian(digest + 4 * i, state[i], 4);
    }
}

void nj_sha256_spell(const unsigned char digest[NJ_SHA256_BYTES], char spelled[NJ_SHA256_CHARS + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < NJ_SHA256_BYTES; i++) {
        spelled[2 * i] = digits[digest[i] >> 4];
        spelled[2 * i + 1] = digits[digest[i] & 15];
    }
    spelled[NJ_SHA256_CHARS] = 0;
}

static unsigned char digit_of(unsigned char c)
{
    return (unsigned char)(c <= '9' ? c - '0' : c - 'a' + 10);
}

void nj_sha256_read(const unsigned char *spelled, unsigned char digest[NJ_SHA256_BYTES])
{
    for (int i = 0; i < NJ_SHA256_BYTES; i++) {
        digest[i] = (unsigned char)(digit_of(spelled[2 * i]) << 4 | digit_of(spelled[2 * i + 1]));
    }
}
