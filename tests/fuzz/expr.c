/* Fuzz expressions: read a text, and run what comes of it; assemble a text in postfix, and run that; take the bytes as a program,
 * and run it if it is valid. Slots hold a value of each tag. */
#include "expr/infix.h"
#include "expr/postfix.h"
#include "starve.h"

#include <stdlib.h>

enum { SLOTS = 8 };

static const nj_value slots[SLOTS] = {
    {.tag = NJ_TAG_INT, .bits = 96},
    {.tag = NJ_TAG_INT, .bits = INT64_MIN},
    {.tag = NJ_TAG_BOOL, .bits = 1},
    {.tag = NJ_TAG_NONE},
    {.tag = NJ_TAG_MISSING},
    {.tag = NJ_TAG_POINTER, .bits = 0x7f0000001010},
    {.tag = NJ_TAG_UINT, .bits = -1},
    {.tag = NJ_TAG_OPAQUE, .bits = 7},
};

/* Names of one letter stand for slots, from `a` on, then for constants; what is quoted is a string. */
static bool find(void *context, nj_span name, nj_instruction *push)
{
    static const nj_instruction constants[] = {
        {.op = NJ_OP_CONST_INT, .operand = 48}, {.op = NJ_OP_CONST_INT, .operand = INT64_MIN}, {.op = NJ_OP_CONST_BOOL, .operand = 1},
        {.op = NJ_OP_CONST_NONE}, {.op = NJ_OP_CONST_OPAQUE, .operand = 7},
    };
    (void)context;
    int letter = name.size == 1 ? name.at[0] - 'a' : -1;
    if (letter >= SLOTS && letter < SLOTS + (int)(sizeof constants / sizeof *constants)) {
        *push = constants[letter - SLOTS];
        return true;
    }
    if (*name.at == '\'' || *name.at == '"') {
        *push = (nj_instruction){.op = NJ_OP_CONST_OPAQUE, .operand = NJ_OPAQUE_BASE + name.at[name.size / 2]};
        return name.size >= 2;
    }
    *push = (nj_instruction){.op = NJ_OP_LOAD, .operand = letter};
    return letter >= 0 && letter < SLOTS;
}

static void run(nj_instruction *code, size_t length)
{
    nj_value result;
    nj_failure why;
    nj_program program = {.length = (uint32_t)length, .code = code};
    if (nj_program_valid(code, length, SLOTS)) {
        nj_run(&program, slots, &result, &why);
    }
}

static void assemble(nj_span words)
{
    nj_assembly made;
    if (nj_assemble(words, find, NULL, SLOTS, &made)) {
        /* what is assembled is valid */
        if (!nj_program_valid(made.code, made.length, SLOTS)) {
            abort();
        }
        run(made.code, made.length);
    }
}

static void read_text(nj_span text)
{
    char *words = malloc(nj_postfix_room(text.size));
    size_t length;
    nj_syntax_error error;
    if (words == NULL) {
        return;
    }
    if (nj_postfix(text, words, &length, &error)) {
        assemble((nj_span){(unsigned char *)words, length});
    } else if (error.column > text.size || memchr(error.what, 0, sizeof error.what) == NULL) {
        abort();
    }
    free(words);
}

void fuzz_input(const unsigned char *bytes, size_t size)
{
    nj_instruction code[NJ_PROGRAM_LENGTH_MAX];
    size_t length = size / sizeof *code;
    read_text((nj_span){bytes, size});
    assemble((nj_span){bytes, size});
    if (length > 0 && length <= NJ_PROGRAM_LENGTH_MAX) {
        memcpy(code, bytes, length * sizeof *code);
        run(code, length);
    }
}
