#include "expr/postfix.h"

#include "expr/operation_names.h"

static bool add(nj_assembly *made, nj_instruction instruction)
{
    if (made->length == NJ_PROGRAM_LENGTH_MAX) {
        return false;
    }
    made->code[made->length++] = instruction;
    return true;
}

static bool is_constant(nj_instruction instruction)
{
    return instruction.op >= NJ_OP_CONST_INT && instruction.op <= NJ_OP_CONST_OPAQUE;
}

/* Returns whether an instruction leaves a bool unless it fails. */
static bool gives_bool(nj_instruction instruction)
{
    uint8_t op = instruction.op;
    return op == NJ_OP_NOT || (op >= NJ_OP_EQ && op <= NJ_OP_GE) || op == NJ_OP_ALIGNED || op == NJ_OP_HAS || op == NJ_OP_CHECK_BOOL;
}

static nj_instruction constant(nj_value value)
{
    static const uint8_t ops[] = {
        [NJ_TAG_NONE] = NJ_OP_CONST_NONE,
        [NJ_TAG_BOOL] = NJ_OP_CONST_BOOL,
        [NJ_TAG_INT] = NJ_OP_CONST_INT,
        [NJ_TAG_OPAQUE] = NJ_OP_CONST_OPAQUE,
    };
    return (nj_instruction){.op = ops[value.tag], .operand = value.tag == NJ_TAG_NONE ? 0 : value.bits};
}

/* Folds the operation that was added last if all its operands are constants. One that fails stays: it may never be reached. */
static void fold(nj_assembly *made, size_t takes)
{
    size_t start = made->length - 1 - takes;
    nj_value result;
    for (size_t i = start; i < made->length - 1; i++) {
        if (!is_constant(made->code[i])) {
            return;
        }
    }
    if (made->starts[made->depth - 1] == start &&
        nj_run(&(nj_program){(uint32_t)takes + 1, &made->code[start]}, NULL, &result, NULL)) {
        made->code[start] = constant(result);
        made->length = start + 1;
    }
}

static void drop_code(nj_assembly *made, size_t start, size_t count)
{
    made->length -= count;
    memmove(&made->code[start], &made->code[start + count], (made->length - start) * sizeof *made->code);
}

static bool add_check(nj_assembly *made, bool stop)
{
    return gives_bool(made->code[made->length - 1]) || add(made, (nj_instruction){.op = NJ_OP_CHECK_BOOL, .operand = stop});
}

/* Folds `and` or `or` if a constant operand allows it; else returns false. `stop` is the value that decides the result. */
static bool fold_logic(nj_assembly *made, bool stop, size_t left, size_t right, bool *kept)
{
    nj_instruction *code = made->code;
    bool known = right - left == 1 && code[left].op == NJ_OP_CONST_BOOL;
    bool neutral = made->length - right == 1 && code[right].op == NJ_OP_CONST_BOOL && (code[right].operand != 0) != stop;
    *kept = true;
    if (known && (code[left].operand != 0) == stop) {
        made->length = right;
    } else if (known) {
        bool constant_bool = made->length - right == 1 && code[right].op == NJ_OP_CONST_BOOL;
        drop_code(made, left, 1);
        *kept = constant_bool || add_check(made, stop);
    } else if (neutral && gives_bool(code[right - 1])) {
        made->length = right;
    } else {
        return false;
    }
    return true;
}

/* Inserts, before the right operand, the jump that skips it if the left operand decides the result. */
static bool add_logic(nj_assembly *made, uint8_t jump)
{
    size_t right = made->starts[--made->depth], left = made->starts[made->depth - 1];
    bool kept, stop = jump == NJ_OP_JUMP_IF_TRUE_KEEP;
    if (fold_logic(made, stop, left, right, &kept)) {
        return kept;
    }
    if (!add_check(made, stop) || !add(made, (nj_instruction){0})) {
        return false;
    }
    size_t length = made->length - 1 - right;
    memmove(&made->code[right + 1], &made->code[right], length * sizeof *made->code);
    made->code[right] = (nj_instruction){.op = jump, .operand = (int64_t)length};
    return true;
}

static bool add_operation(nj_assembly *made, uint8_t op)
{
    size_t takes = nj_operands(op);
    if (made->depth < takes) {
        return false;
    }
    if (op == NJ_OP_JUMP_IF_FALSE_KEEP || op == NJ_OP_JUMP_IF_TRUE_KEEP) {
        return add_logic(made, op);
    }
    made->depth -= takes - 1;
    if (!add(made, (nj_instruction){.op = op})) {
        return false;
    }
    fold(made, takes);
    return true;
}

/* Reads a whole word as a decimal int. */
static bool read_int(nj_span word, int64_t *value)
{
    bool negative = word.size > 1 && *word.at == '-';
    *value = 0;
    for (size_t i = negative; i < word.size; i++) {
        int digit = word.at[i] - '0';
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, negative ? -digit : digit, value)) {
            return false;
        }
    }
    /* each int has one spelling: no -0, and no leading zeros */
    bool zero = word.at[negative] == '0';
    return !zero || (!negative && word.size == 1);
}

static bool add_operand(nj_assembly *made, nj_span word, nj_find_name find, void *context)
{
    nj_instruction push = {0};
    if (word.size == 0) {
        return false;
    }
    if (nj_span_is(word, "true") || nj_span_is(word, "false")) {
        push = (nj_instruction){.op = NJ_OP_CONST_BOOL, .operand = *word.at == 't'};
    } else if (nj_span_is(word, "none")) {
        push.op = NJ_OP_CONST_NONE;
    } else if (read_int(word, &push.operand)) {
        push.op = NJ_OP_CONST_INT;
    } else if (!find(context, word, &push)) {
        return false;
    }
    if (made->depth == NJ_PROGRAM_STACK_MAX) {
        return false;
    }
    made->starts[made->depth++] = made->length;
    return add(made, push);
}

/* Takes the next word and the space after it. A string ends at its closing quote, so it may contain spaces. */
static nj_span take_word(nj_span *rest)
{
    const unsigned char *at = rest->at, *end = at + rest->size;
    const unsigned char *quote = *at == '\'' || *at == '"' ? memchr(at + 1, *at, rest->size - 1) : NULL;
    const unsigned char *space = quote == NULL ? memchr(at, ' ', rest->size) : memchr(quote, ' ', (size_t)(end - quote));
    nj_span word = {rest->at, space == NULL ? rest->size : (size_t)(space - rest->at)};
    size_t taken = word.size + (space != NULL);
    *rest = (nj_span){rest->at + taken, rest->size - taken};
    return word;
}

bool nj_assemble(nj_span text, nj_find_name find, void *context, size_t slots, nj_assembly *made)
{
    made->length = made->depth = 0;
    while (text.size > 0) {
        nj_span word = take_word(&text);
        const nj_operation *operation = nj_operation_of(word);
        if (!(operation != NULL ? add_operation(made, operation->op) : add_operand(made, word, find, context))) {
            return false;
        }
    }
    return nj_program_valid(made->code, made->length, slots);
}
