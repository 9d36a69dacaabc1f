#include "select/tuning_key.h"

#include "expr/infix.h"
#include "expr/postfix.h"
#include "select/key_expressions.h"
#include "table/find_by_name.h"

#include <stdlib.h>

/* Static, so that a launch rounds its key without a library call for each number; `nj_bucket_of` exports it. */
static int64_t round_number(nj_bucket bucket, int64_t value)
{
    if (value <= 0 || bucket == NJ_BUCKET_EXACT) {
        return value < 0 ? 0 : value;
    }
    if (value > (int64_t)1 << 62) {
        return (int64_t)1 << 62;
    }
    int behind = 63 - __builtin_clzll((uint64_t)value); /* bits after the leading one */
    if (bucket == NJ_BUCKET_POW2) {
        return value == (int64_t)1 << behind ? value : (int64_t)2 << behind;
    }
    int kept = bucket == NJ_BUCKET_QUARTER_POW2 ? 2 : 4; /* bits that stay after the leading one */
    if (behind <= kept) {
        return value;
    }
    int64_t step = (int64_t)1 << (behind - kept);
    return (value + (bucket == NJ_BUCKET_QUARTER_POW2 ? step / 2 : step - 1)) & -step;
}

static int64_t compute(const nj_tuning_key *key, const nj_value *values)
{
    nj_value result;
    if (key->factor_count == 0) {
        bool done = nj_run(&key->program, values, &result, NULL);
        return done && result.tag == NJ_TAG_INT ? result.bits : 0;
    }
    result = values[key->factors[0]];
    for (unsigned int i = 1; i < key->factor_count; i++) {
        const nj_value *factor = &values[key->factors[i]];
        if (factor->tag != NJ_TAG_INT || __builtin_mul_overflow(result.bits, factor->bits, &result.bits)) {
            return 0;
        }
    }
    return result.tag == NJ_TAG_INT ? result.bits : 0;
}

void nj_tuning_round(const nj_tuning_key *key, uint32_t count, nj_bucket bucket, const nj_value *values, int64_t *rounded)
{
    for (uint32_t i = 0; i < count; i++) {
        rounded[i] = round_number(bucket, compute(&key[i], values));
    }
}

int64_t nj_bucket_of(nj_bucket bucket, int64_t value)
{
    return round_number(bucket, value);
}

int64_t nj_tuning_number(const nj_tuning_key *key, const nj_value *values)
{
    return compute(key, values);
}

/* Fills the factors of a program that is a product of arguments. */
static void shorten(nj_tuning_key *key)
{
    const nj_instruction *code = key->program.code;
    /* a product is LOAD, then LOAD and MUL for each further factor */
    uint32_t count = (key->program.length + 1) / 2;
    key->factor_count = 0;
    if (count > NJ_FACTORS_MAX || key->program.length % 2 == 0) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const nj_instruction *load = i == 0 ? code : &code[2 * i - 1];
        if (load->op != NJ_OP_LOAD || (i > 0 && load[1].op != NJ_OP_MUL)) {
            return;
        }
        key->factors[i] = (uint16_t)load->operand;
    }
    key->factor_count = (uint16_t)count;
}

void nj_tuning_key_clear(nj_tuning_key *key)
{
    free(key->program.code);
    *key = (nj_tuning_key){0};
}

/* Finds the instruction that pushes a name of a tuning key. */
static bool find_param(void *context, nj_span name, nj_instruction *push)
{
    const nj_signatures *signatures = context;
    bool starved = false;
    if (nj_is_quoted(name)) {
        return nj_push_quoted(signatures->ids, name, push, &starved);
    }
    size_t place = nj_param_place(signatures->table, name);
    *push = (nj_instruction){.op = NJ_OP_LOAD, .operand = (int64_t)place};
    return place < signatures->table->param_count;
}

static bool is_param(void *context, nj_span name)
{
    nj_instruction push;
    return find_param(context, name, &push);
}

static bool make_program(const nj_signatures *signatures, nj_span text, nj_span words, nj_tuning_key *key, nj_error *error)
{
    nj_assembly made;
    if (!nj_assemble(words, find_param, (void *)signatures, signatures->table->param_count, &made)) {
        return nj_refuse_program(text, words, is_param, (void *)signatures, error);
    }
    if (!nj_program_copy(made.code, made.length, &key->program)) {
        return nj_no_memory(error);
    }
    shorten(key);
    return true;
}

/* Makes the program of an expression that the table does not contain. */
static bool make_of_text(const nj_signatures *signatures, nj_span text, nj_tuning_key *key, nj_error *error)
{
    char *words = malloc(nj_postfix_room(text.size));
    size_t length;
    nj_syntax_error why;
    if (words == NULL) {
        return nj_no_memory(error);
    }
    bool made = nj_postfix(text, words, &length, &why)
                    ? make_program(signatures, text, (nj_span){(unsigned char *)words, length}, key, error)
                    : nj_differ(error, nj_quote(text).text, "expected an expression over the kernel's params");
    free(words);
    return made;
}

bool nj_tuning_programs(const nj_signatures *signatures, const nj_tuning *tuning, nj_tuning_key *made, nj_error *error)
{
    const nj_table *table = signatures->table;
    bool own = tuning == &table->tuning, done = true;
    for (uint32_t i = 0; done && i < tuning->key_count; i++) {
        done = own ? make_program(signatures, tuning->key[i], table->programs[table->grid_count + table->derived_count + i], &made[i], error)
                   : make_of_text(signatures, tuning->key[i], &made[i], error);
    }
    return done;
}
