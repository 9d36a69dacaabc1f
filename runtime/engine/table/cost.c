#include "table/cost.h"

#include "expr/postfix.h"

enum { DIGITS_MAX = 4 };

bool nj_cost_key(nj_span word, uint32_t key_count, uint32_t *key)
{
    size_t start = strlen("key"), digits = word.size > start ? word.size - start : 0;
    bool right = digits > 0 && digits <= DIGITS_MAX && memcmp(word.at, "key", start) == 0 && (word.at[start] != '0' || digits == 1);
    *key = 0;
    for (size_t i = start; right && i < word.size; i++) {
        right = word.at[i] >= '0' && word.at[i] <= '9';
        *key = 10 * *key + (uint32_t)(word.at[i] - '0');
    }
    return right && *key < key_count;
}

static bool find_fact(void *context, nj_span word, nj_instruction *push)
{
    uint32_t key_count = *(const uint32_t *)context, key;
    bool is_key = nj_cost_key(word, key_count, &key);
    *push = (nj_instruction){.op = NJ_OP_LOAD, .operand = is_key ? key : key_count};
    return is_key || nj_span_is(word, "multiprocessors");
}

/* Returns whether the last word of a program gives a bool or none. */
static bool ends_in_no_number(nj_span words)
{
    static const char *const others[] = {"==", "!=", "<", "<=", ">", ">=", "and", "or", "not()", "has()", "aligned()", "true", "false", "none"};
    size_t start = words.size;
    while (start > 0 && words.at[start - 1] != ' ') {
        start--;
    }
    nj_span last = {words.at + start, words.size - start};
    bool is = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        is |= nj_span_is(last, others[i]);
    }
    return is;
}

static bool has_quotes(nj_span words)
{
    return words.size > 0 && (memchr(words.at, '\'', words.size) != NULL || memchr(words.at, '"', words.size) != NULL);
}

bool nj_is_cost(nj_span words, uint32_t key_count)
{
    nj_assembly made;
    return words.size > 0 && words.at[words.size - 1] != ' ' && !has_quotes(words) &&
           !ends_in_no_number(words) && nj_assemble(words, find_fact, &key_count, (size_t)key_count + 1, &made);
}
