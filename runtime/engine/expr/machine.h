/* The machine that computes expressions: ints are 64-bit and signed, `//` and `%` floor as in Python, and an operation
 * that would give a wrong number, such as an overflow, fails.
 *
 * A program is a run of instructions over a stack of at most NJ_PROGRAM_STACK_MAX values and an array of slots, one for each
 * name that it may load. The instructions change the stack:
 *
 * - CONST_INT, CONST_BOOL, CONST_NONE, CONST_OPAQUE push a constant: the operand, the operand as 0 or 1, none, and the string
 *   or float whose bits or interned id is the operand.
 * - LOAD pushes the slot that the operand numbers; a slot without a value is a failure. HAS is the only operation on a tuple, a
 *   descriptor or an int of more than 63 bits.
 * - NEG, NOT, NEXT_POW2, HAS replace the top by their result; ADD to GE, CDIV, MIN, MAX and ALIGNED replace the top two, the
 *   left operand below. Two OPAQUEs are equal if their operands are; addresses are unsigned.
 * - JUMP_IF_FALSE_KEEP and JUMP_IF_TRUE_KEEP check that the top is a bool. If it is false (or true), they skip as many
 *   instructions as the operand says and keep it; else they pop it. Jumps only go forward, at most to the end.
 * - CHECK_BOOL checks that the top is a bool.
 *
 * The one value left at the end is the result; a pointer is a failure. */
#ifndef NOJIT_EXPR_MACHINE_H
#define NOJIT_EXPR_MACHINE_H

#include "base/internal.h"
#include "expr/value.h"

/* The instructions; operation_names.h has their words in postfix. */
typedef enum {
    NJ_OP_CONST_INT = 1,
    NJ_OP_CONST_BOOL = 2,
    NJ_OP_CONST_NONE = 3,
    NJ_OP_CONST_OPAQUE = 4,
    NJ_OP_LOAD = 5,
    NJ_OP_NEG = 6,
    NJ_OP_NOT = 7,
    NJ_OP_ADD = 8,
    NJ_OP_SUB = 9,
    NJ_OP_MUL = 10,
    NJ_OP_FLOORDIV = 11,
    NJ_OP_MOD = 12,
    NJ_OP_EQ = 13,
    NJ_OP_NE = 14,
    NJ_OP_LT = 15,
    NJ_OP_LE = 16,
    NJ_OP_GT = 17,
    NJ_OP_GE = 18,
    NJ_OP_CDIV = 19,
    NJ_OP_MIN = 20,
    NJ_OP_MAX = 21,
    NJ_OP_NEXT_POW2 = 22,
    NJ_OP_ALIGNED = 23,
    NJ_OP_HAS = 24,
    NJ_OP_JUMP_IF_FALSE_KEEP = 25,
    NJ_OP_JUMP_IF_TRUE_KEEP = 26,
    NJ_OP_CHECK_BOOL = 27, /* operand 1 for `or`, 0 for `and`: only messages read it */
} nj_op;

#define NJ_PROGRAM_STACK_MAX 32
#define NJ_PROGRAM_LENGTH_MAX 256

#define NJ_SPELL(number) #number
#define NJ_SPELLED(number) NJ_SPELL(number)
/* The message for an expression without a program whose names are all known. */
#define NJ_PROGRAM_RULE                                                                            \
    "more than " NJ_SPELLED(NJ_PROGRAM_STACK_MAX) " levels of nested operations, or than " NJ_SPELLED(NJ_PROGRAM_LENGTH_MAX) \
    " operations and operands"

typedef struct {
    uint8_t op;
    uint8_t unused[7];
    int64_t operand;
} nj_instruction;

_Static_assert(sizeof(nj_instruction) == 16, "instructions are packed as <B7xq");

typedef struct {
    uint32_t length;
    nj_instruction *code;
} nj_program;

static inline bool nj_is_unary(uint8_t op)
{
    return op == NJ_OP_NEG || op == NJ_OP_NOT || op == NJ_OP_NEXT_POW2 || op == NJ_OP_HAS;
}

/* Returns whether `code` is a program over `slots` slots that stays within its stack; `nj_run` relies on it. */
NJ_FOR_BINDING bool nj_program_valid(const nj_instruction *code, size_t length, size_t slots);

/* The operation at which a program failed. */
typedef struct {
    uint8_t op;           /* the operation; 0 if the program ran, but its result is a pointer or another value that no result may be */
    nj_value left, right; /* its operands; for NJ_OP_LOAD the value of the slot, and its number as an int */
} nj_failure;

/* Runs a valid program. Returns false if an operation fails, by a wrong type, an overflow or a division by zero, and fills
 * `why` with the operation unless it is NULL. */
NJ_FOR_BINDING bool nj_run(const nj_program *program, const nj_value *slots, nj_value *result, nj_failure *why);

#endif
