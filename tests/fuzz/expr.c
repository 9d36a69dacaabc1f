/* Fuzz the expression machine: assemble a text in postfix, and run what comes of it; take the bytes as a program, and run it if it
 * is valid. Slots hold a value of each tag. */
#include "expr/postfix.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

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

/* Names of one letter stand for slots, from `a` on. */
static bool find(void *context, nj_span name, nj_instruction *push)
{
    (void)context;
    push->op = NJ_OP_LOAD;
    push->operand = name.size == 1 ? name.at[0] - 'a' : -1;
    return push->operand >= 0 && push->operand < SLOTS;
}

static void run(nj_instruction *code, size_t length)
{
    nj_value result;
    nj_program program = {.length = (uint32_t)length, .code = code};
    if (nj_program_valid(code, length, SLOTS)) {
        nj_run(&program, slots, &result);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
    nj_assembly made;
    nj_instruction code[NJ_PROGRAM_LENGTH_MAX];
    size_t length = size / sizeof *code;
    if (nj_assemble((nj_span){bytes, size}, find, NULL, SLOTS, &made)) {
        /* what is assembled is valid */
        if (!nj_program_valid(made.code, made.length, SLOTS)) {
            abort();
        }
        run(made.code, made.length);
    }
    if (length > 0 && length <= NJ_PROGRAM_LENGTH_MAX) {
        memcpy(code, bytes, length * sizeof *code);
        run(code, length);
    }
    return 0;
}
