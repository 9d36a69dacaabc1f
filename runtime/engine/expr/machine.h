/* Programs of the expression language: runtime/expr_program.py says what each instruction does. */
#ifndef NOJIT_EXPR_MACHINE_H
#define NOJIT_EXPR_MACHINE_H

#include "base/internal.h"
#include "expr/value.h"

/* The numbers are those of `Op` in runtime/expr_ops.py. */
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
    NJ_OP_CHECK_BOOL = 27,
} nj_op;

#define NJ_PROGRAM_STACK_MAX 32
#define NJ_PROGRAM_LENGTH_MAX 256

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

/* Says whether `code` is a program over `slots` slots that keeps its stack: `nj_run` relies on it. */
NJ_INTERNAL bool nj_program_valid(const nj_instruction *code, size_t length, size_t slots);

/* Runs a valid program. False where an operation fails: a wrong type, an overflow, a division by zero. */
NJ_INTERNAL bool nj_run(const nj_program *program, const nj_value *slots, nj_value *result);

#endif
