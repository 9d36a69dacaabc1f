/* Reads the values of constexprs in tables (docs/bundle-format.md, chapter 6). */
#ifndef NOJIT_TABLE_CONSTANT_H
#define NOJIT_TABLE_CONSTANT_H

#include "json/document.h"
#include "table/arena.h"

/* The most levels of tuples in tuples, in constants and in types. */
enum { NJ_TUPLE_DEPTH_MAX = 8 };

typedef enum {
    NJ_CONSTANT_NONE,
    NJ_CONSTANT_BOOL,
    NJ_CONSTANT_INT,
    NJ_CONSTANT_FLOAT,
    NJ_CONSTANT_TEXT,
    NJ_CONSTANT_DTYPE,
    NJ_CONSTANT_FUNCTION,
    NJ_CONSTANT_TUPLE,
} nj_constant_kind;

typedef struct nj_constant {
    uint8_t kind;   /* an nj_constant_kind */
    bool negative;  /* of an int, whose magnitude has up to 64 bits */
    uint32_t count; /* of a tuple: number of items */
    union {
        bool truth;
        uint64_t magnitude;
        double number;
        nj_span text; /* of a text, a dtype or a function: UTF-8 */
        const struct nj_constant *items;
    };
} nj_constant;

/* Takes a value, and allocates its items in the arena. */
bool nj_take_constant(nj_document *it, nj_arena *arena, nj_constant *value);

/* Takes an array of at most `most` values. */
bool nj_take_constants(nj_document *it, nj_arena *arena, size_t most, const nj_constant **values, uint32_t *count);

/* A value that is read from a document of its own. */
typedef struct {
    nj_document document;
    void *memory; /* memory of its items; owned */
    nj_constant value;
} nj_lone_constant;

/* Reads a value from JSON, which must outlive it. Call `nj_constant_close` in either case. */
NJ_FOR_BINDING bool nj_constant_read(nj_span raw, nj_lone_constant *constant, nj_error *error);
NJ_FOR_BINDING void nj_constant_close(nj_lone_constant *constant);

#endif
