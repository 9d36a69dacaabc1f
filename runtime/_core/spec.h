/* The facts of a call that decide which variant runs, as a key; and the plans found so far, by key.
 * One per kernel and device. Guarded by the GIL. */
#ifndef NOJIT_SPEC_H
#define NOJIT_SPEC_H

#include "cache.h"
#include "type.h"

/* bits that a constexpr, an option or a program's result takes in the packed words */
#define NJ_MARK_BITS 3
/* two bits for each leaf of a tuple */
#define NJ_LEAF_WORDS_MAX (NJ_LEAVES_MAX / 32)

/* How a field is read; the first two are short cuts for what nearly all arguments are. */
typedef enum {
    NJ_FIELD_INT, /* one int type and no other */
    NJ_FIELD_POINTER, /* pointers, and perhaps others */
    NJ_FIELD_ANY,
    NJ_FIELD_CONSTEXPR, /* a constexpr, an option or a program */
} nj_field_kind;

/* Where a param, constexpr, option or program leaves its mark in the key. */
typedef struct {
    uint16_t word;
    uint8_t shift;
    uint8_t kind;
    bool hint_16; /* whether some variant was compiled for values divisible by 16 */
    bool hint_1;  /* and for the value 1 */
    bool tuple;   /* whether some type is one: the hints of its members go behind the packed words */
    bool address; /* whether a bare int is an address: the param takes nothing but pointers */
    uint8_t type_count;
    nj_type *types;     /* NULL for what is not a runtime param */
    PyObject *spelled;  /* tuple: how tables spell these types; owned */
    uint64_t *pointers; /* for each nj_dtype, which of the types take a pointer to it; all do if it does not say */
    nj_value fallback; /* of a constexpr: what programs see where the call gives none */
} nj_field;

/* How the numbers of a tuning key are rounded; places in `BUCKETS` of runtime/tuning_table.py. */
typedef enum {
    NJ_BUCKET_POW2 = 0,
    NJ_BUCKET_QUARTER_POW2 = 1,
    NJ_BUCKET_EXACT = 2,
    NJ_BUCKET_SIXTEENTH_POW2 = 3,
} nj_bucket;

#define NJ_FACTORS_MAX 4

/* One number of a tuning key. */
typedef struct {
    nj_program program;
    uint16_t factor_count; /* 0 unless the program is a product of so many arguments, as most are */
    uint16_t factors[NJ_FACTORS_MAX];
} nj_tuning_key;

typedef struct {
    PyObject_HEAD
    Py_ssize_t argument_count;
    Py_ssize_t program_count;
    Py_ssize_t tuning_count; /* 0 too where one order serves every key */
    nj_tuning_key *tuning;
    nj_bucket bucket;
    nj_field *fields; /* arguments, then programs */
    nj_program *programs;
    uint32_t packed_words;
    PyObject *table; /* that the facts are of */
    int arch;        /* what ``arch`` stands for in its expressions */
    nj_cache cache;
} nj_spec;

extern PyTypeObject *nj_spec_type;

/* Makes the type; once, at import. */
int nj_spec_init(PyObject *module);

/* Finds the short cut of a program that is a product of arguments. */
void nj_tuning_key_shorten(nj_tuning_key *key);

/* The number, rounded; 0 where it cannot be computed or is no int. */
int64_t nj_tuning_key_value(const nj_tuning_key *key, nj_bucket bucket, const nj_value *slots);

/* Makes the key of a call; false if only the slow path can judge the call. Turns ints into addresses where a param
 * takes only pointers, and numbers into those of the param's type, as Triton does, and fills in the defaults of constexprs. */
bool nj_spec_key(const nj_spec *spec, nj_call *call, nj_key *key);

#endif
