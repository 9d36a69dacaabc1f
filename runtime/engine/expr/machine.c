#include "expr/machine.h"

static bool is_binary(uint8_t op)
{
    return (op >= NJ_OP_ADD && op <= NJ_OP_MAX) || op == NJ_OP_ALIGNED;
}

static bool is_jump(uint8_t op)
{
    return op == NJ_OP_JUMP_IF_FALSE_KEEP || op == NJ_OP_JUMP_IF_TRUE_KEEP;
}

/* Returns the depth of the stack after an instruction that does not jump; -1 if it is not valid at this depth. */
static int depth_after(const nj_instruction *instruction, int depth, size_t slots)
{
    uint8_t op = instruction->op;
    if (op >= NJ_OP_CONST_INT && op <= NJ_OP_LOAD) {
        bool known = op != NJ_OP_LOAD || (instruction->operand >= 0 && (uint64_t)instruction->operand < slots);
        return known && depth < NJ_PROGRAM_STACK_MAX ? depth + 1 : -1;
    }
    if (is_binary(op)) {
        return depth >= 2 ? depth - 1 : -1;
    }
    if (nj_is_unary(op) || op == NJ_OP_CHECK_BOOL) {
        return depth >= 1 ? depth : -1;
    }
    return is_jump(op) && depth >= 1 ? depth - 1 : -1;
}

bool nj_program_valid(const nj_instruction *code, size_t length, size_t slots)
{
    /* the depth that jumps to an instruction, or to the end, leave there; 0 if there are none */
    uint8_t promised[NJ_PROGRAM_LENGTH_MAX + 1] = {0};
    if (length == 0 || length > NJ_PROGRAM_LENGTH_MAX) {
        return false;
    }
    int depth = 0;
    for (size_t at = 0; at < length; at++) {
        if (promised[at] != 0 && promised[at] != depth) {
            return false;
        }
        if (is_jump(code[at].op)) {
            if (code[at].operand < 0 || (uint64_t)code[at].operand > length - at - 1 || depth < 1) {
                return false;
            }
            size_t target = at + 1 + (size_t)code[at].operand;
            if (promised[target] != 0 && promised[target] != depth) {
                return false;
            }
            promised[target] = (uint8_t)depth;
        }
        depth = depth_after(&code[at], depth, slots);
        if (depth < 0) {
            return false;
        }
    }
    return depth == 1 && (promised[length] == 0 || promised[length] == 1);
}

static bool floor_divide(int64_t a, int64_t b, int64_t *quotient, int64_t *rest)
{
    if (b == 0 || (a == INT64_MIN && b == -1)) {
        return false;
    }
    int64_t q = a / b;
    int64_t r = a % b;
    if (r != 0 && (r < 0) != (b < 0)) {
        q -= 1;
        r += b;
    }
    *quotient = q;
    *rest = r;
    return true;
}

static bool next_pow2(int64_t a, int64_t *result)
{
    if (a <= 1) {
        *result = 1;
        return true;
    }
    if (a > (int64_t)1 << 62) {
        return false;
    }
    *result = (int64_t)1 << (64 - __builtin_clzll((uint64_t)a - 1));
    return true;
}

static bool compute_ints(nj_op op, int64_t a, int64_t b, nj_value *out)
{
    int64_t other;
    out->tag = op >= NJ_OP_LT && op <= NJ_OP_GE ? NJ_TAG_BOOL : NJ_TAG_INT;
    switch (op) {
    case NJ_OP_ADD: return !__builtin_add_overflow(a, b, &out->bits);
    case NJ_OP_SUB: return !__builtin_sub_overflow(a, b, &out->bits);
    case NJ_OP_MUL: return !__builtin_mul_overflow(a, b, &out->bits);
    case NJ_OP_FLOORDIV: return floor_divide(a, b, &out->bits, &other);
    case NJ_OP_MOD:
        if (b == -1) { /* INT64_MIN % -1 is 0: only the quotient overflows */
            out->bits = 0;
            return true;
        }
        return floor_divide(a, b, &other, &out->bits);
    case NJ_OP_CDIV:
        if (b <= 0 || !floor_divide(a, b, &out->bits, &other)) {
            return false;
        }
        out->bits += other != 0;
        return true;
    case NJ_OP_LT: out->bits = a < b; return true;
    case NJ_OP_LE: out->bits = a <= b; return true;
    case NJ_OP_GT: out->bits = a > b; return true;
    case NJ_OP_GE: out->bits = a >= b; return true;
    case NJ_OP_MIN: out->bits = a < b ? a : b; return true;
    case NJ_OP_MAX: out->bits = a > b ? a : b; return true;
    default: return false;
    }
}

static bool compute_aligned(const nj_value *of, const nj_value *bytes, nj_value *out)
{
    if (bytes->tag != NJ_TAG_INT || bytes->bits <= 0) {
        return false;
    }
    out->tag = NJ_TAG_BOOL;
    switch (of->tag) {
    case NJ_TAG_NONE: out->bits = 0; return true;
    case NJ_TAG_POINTER: out->bits = (uint64_t)of->bits % (uint64_t)bytes->bits == 0; return true;
    case NJ_TAG_INT: out->bits = of->bits % bytes->bits == 0; return true;
    default: return false;
    }
}

static bool compute_equal(const nj_value *a, const nj_value *b, bool negate, nj_value *out)
{
    if (a->tag >= NJ_TAG_POINTER || b->tag >= NJ_TAG_POINTER) {
        return false;
    }
    bool equal = a->tag == b->tag && (a->tag == NJ_TAG_NONE || a->bits == b->bits);
    *out = (nj_value){.tag = NJ_TAG_BOOL, .bits = equal != negate};
    return true;
}

static bool fail(nj_failure *why, uint8_t op, nj_value left, nj_value right)
{
    if (why != NULL) {
        *why = (nj_failure){op, left, right};
    }
    return false;
}

static bool compute_binary(nj_op op, nj_value *a, const nj_value *b, nj_failure *why)
{
    nj_value result = {0};
    bool done;
    if (op == NJ_OP_EQ || op == NJ_OP_NE) {
        done = compute_equal(a, b, op == NJ_OP_NE, &result);
    } else if (op == NJ_OP_ALIGNED) {
        done = compute_aligned(a, b, &result);
    } else {
        done = a->tag == NJ_TAG_INT && b->tag == NJ_TAG_INT && compute_ints(op, a->bits, b->bits, &result);
    }
    if (!done) {
        return fail(why, op, *a, *b);
    }
    *a = result;
    return true;
}

static bool compute_unary(nj_op op, nj_value *top, nj_failure *why)
{
    nj_value result = *top;
    bool done;
    switch (op) {
    case NJ_OP_NEG: done = top->tag == NJ_TAG_INT && !__builtin_sub_overflow((int64_t)0, top->bits, &result.bits); break;
    case NJ_OP_NEXT_POW2: done = top->tag == NJ_TAG_INT && next_pow2(top->bits, &result.bits); break;
    case NJ_OP_NOT: result.bits = !top->bits; done = top->tag == NJ_TAG_BOOL; break;
    default: result = (nj_value){.tag = NJ_TAG_BOOL, .bits = top->tag != NJ_TAG_NONE}; done = true; break; /* NJ_OP_HAS */
    }
    if (!done) {
        return fail(why, op, *top, (nj_value){0});
    }
    *top = result;
    return true;
}

static bool push(const nj_instruction *instruction, const nj_value *slots, nj_value *top, nj_failure *why)
{
    int64_t operand = instruction->operand;
    switch (instruction->op) {
    case NJ_OP_CONST_INT: *top = (nj_value){.tag = NJ_TAG_INT, .bits = operand}; return true;
    case NJ_OP_CONST_BOOL: *top = (nj_value){.tag = NJ_TAG_BOOL, .bits = operand != 0}; return true;
    case NJ_OP_CONST_NONE: *top = (nj_value){.tag = NJ_TAG_NONE}; return true;
    case NJ_OP_CONST_OPAQUE: *top = (nj_value){.tag = NJ_TAG_OPAQUE, .bits = operand}; return true;
    default: /* NJ_OP_LOAD: of tuples, descriptors and long ints, only NJ_OP_HAS does not fail */
        *top = slots[operand];
        return (top->tag != NJ_TAG_MISSING && top->tag != NJ_TAG_UNKNOWN) ||
               fail(why, NJ_OP_LOAD, *top, (nj_value){.tag = NJ_TAG_INT, .bits = operand});
    }
}

/* Runs a jump or NJ_OP_CHECK_BOOL. Returns the number of instructions to skip; -1 if the top is no bool. */
static int64_t test_bool(const nj_instruction *instruction, const nj_value *top, size_t *depth)
{
    if (top->tag != NJ_TAG_BOOL) {
        return -1;
    }
    if (!is_jump(instruction->op)) {
        return 0;
    }
    if ((top->bits != 0) == (instruction->op == NJ_OP_JUMP_IF_TRUE_KEEP)) {
        return instruction->operand;
    }
    *depth -= 1;
    return 0;
}

bool nj_run(const nj_program *program, const nj_value *slots, nj_value *result, nj_failure *why)
{
    nj_value stack[NJ_PROGRAM_STACK_MAX];
    size_t depth = 0;
    for (size_t at = 0; at < program->length; at++) {
        const nj_instruction *instruction = &program->code[at];
        if (instruction->op <= NJ_OP_LOAD) {
            if (!push(instruction, slots, &stack[depth++], why)) {
                return false;
            }
        } else if (is_binary(instruction->op)) {
            depth--;
            if (!compute_binary(instruction->op, &stack[depth - 1], &stack[depth], why)) {
                return false;
            }
        } else if (nj_is_unary(instruction->op)) {
            if (!compute_unary(instruction->op, &stack[depth - 1], why)) {
                return false;
            }
        } else {
            int64_t skip = test_bool(instruction, &stack[depth - 1], &depth);
            if (skip < 0) {
                return fail(why, instruction->op, stack[depth - 1], (nj_value){.tag = NJ_TAG_INT, .bits = instruction->operand});
            }
            at += (size_t)skip;
        }
    }
    *result = stack[0];
    return result->tag < NJ_TAG_POINTER || fail(why, 0, *result, (nj_value){0});
}
