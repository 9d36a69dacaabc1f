#include "table/number_text.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MANTISSA_DIGITS = 13, /* hexadecimal, of a double */
    EXPONENT_MIN = -1022,
    EXPONENT_MAX = 1023,
    EXPONENT_DIGITS_MAX = 4, /* no double has an exponent of more digits */
    DECIMALS_MAX = 17,       /* no double needs more */
    POINT_MAX = 16,          /* repr writes numbers of more digits before the point with an exponent */
    POINT_MIN = -4,
};

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static int hex_digit(unsigned char c)
{
    unsigned char lower = c | 0x20;
    return is_digit(c) ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static bool pass(nj_span *rest, char expected)
{
    bool stands = rest->size > 0 && rest->at[0] == (unsigned char)expected;
    *rest = (nj_span){rest->at + stands, rest->size - stands};
    return stands;
}

static nj_span take_digits(nj_span *rest, bool hex)
{
    size_t count = 0;
    while (count < rest->size && (hex ? hex_digit(rest->at[count]) >= 0 : is_digit(rest->at[count]))) {
        count++;
    }
    nj_span digits = {rest->at, count};
    *rest = (nj_span){rest->at + count, rest->size - count};
    return digits;
}

/* Takes an exponent such as `p+12`. Returns false if there is none, or it has more digits than that of any double. */
static bool take_exponent(nj_span *rest, char mark, int *exponent, bool *is_plain)
{
    bool marked = pass(rest, mark), negative = marked && pass(rest, '-'), positive = !negative && marked && pass(rest, '+');
    nj_span digits = take_digits(rest, false);
    *exponent = 0;
    for (size_t i = 0; i < digits.size && i < EXPONENT_DIGITS_MAX; i++) {
        *exponent = 10 * *exponent + (digits.at[i] - '0');
    }
    *is_plain = (negative || positive) && digits.size > 0 && (digits.at[0] != '0' || (digits.size == 1 && positive));
    *exponent = negative ? -*exponent : *exponent;
    return marked && digits.size > 0 && digits.size <= EXPONENT_DIGITS_MAX;
}

static bool is_word(nj_span text, bool negative, double *number)
{
    bool is_infinite = nj_span_is(text, "inf"), is_nan = nj_span_is(text, "nan") && !negative;
    *number = is_nan ? __builtin_nan("") : negative ? -INFINITY : INFINITY;
    return is_infinite || is_nan;
}

static double double_of(bool negative, uint64_t exponent, uint64_t mantissa)
{
    uint64_t bits = (uint64_t)negative << 63 | exponent << 52 | mantissa;
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Returns whether the parts of a hexadecimal float are the canonical spelling of a double. */
static bool is_canonical(nj_span whole, nj_span mantissa, int exponent)
{
    if (whole.size != 1 || (whole.at[0] != '0' && whole.at[0] != '1')) {
        return false;
    }
    if (whole.at[0] == '0' && mantissa.size == 1 && mantissa.at[0] == '0') {
        return exponent == 0;
    }
    bool has_ones = false;
    for (size_t i = 0; i < mantissa.size; i++) {
        has_ones |= mantissa.at[i] != '0';
        if (mantissa.at[i] >= 'A' && mantissa.at[i] <= 'F') {
            return false;
        }
    }
    bool in_reach = exponent >= EXPONENT_MIN && exponent <= EXPONENT_MAX;
    return mantissa.size == MANTISSA_DIGITS && in_reach && (whole.at[0] == '1' || (has_ones && exponent == EXPONENT_MIN));
}

nj_float_spelling nj_float_of_hex(nj_span text, double *number)
{
    nj_span rest = text;
    bool negative = pass(&rest, '-'), is_plain = true;
    if (is_word(rest, negative, number)) {
        return NJ_FLOAT_CANONICAL;
    }
    bool prefixed = rest.size > 2 && rest.at[0] == '0' && rest.at[1] == 'x';
    rest = (nj_span){rest.at + 2 * prefixed, rest.size - 2 * prefixed};
    nj_span whole = take_digits(&rest, true);
    bool pointed = pass(&rest, '.');
    nj_span mantissa = take_digits(&rest, true);
    int exponent = 0;
    bool has_exponent = rest.size > 0;
    if (whole.size + mantissa.size == 0 || (has_exponent && !take_exponent(&rest, 'p', &exponent, &is_plain)) || rest.size > 0) {
        return NJ_FLOAT_NONE;
    }
    if (!prefixed || !pointed || !has_exponent || !is_plain || !is_canonical(whole, mantissa, exponent)) {
        return NJ_FLOAT_OTHERWISE;
    }
    uint64_t bits = 0;
    for (size_t i = 0; i < mantissa.size; i++) {
        bits = bits << 4 | (uint64_t)hex_digit(mantissa.at[i]);
    }
    *number = double_of(negative, whole.at[0] == '1' ? (uint64_t)(exponent + EXPONENT_MAX) : 0, bits);
    return NJ_FLOAT_CANONICAL;
}

/* A decimal number. The digits hold no point, so that the locale has no influence. */
typedef struct {
    char digits[DECIMALS_MAX + 1];
    int count;
    int point; /* digits before it; not positive for 0.01 */
} nj_decimal;

/* Returns the double nearest to a decimal number. */
static double nearest(const char *digits, int count, int point)
{
    char text[48];
    snprintf(text, sizeof text, "%.*se%d", count, digits, point - count);
    return strtod(text, NULL);
}

/* Returns whether fewer digits do not identify the number, and no other digits of equal count are nearer to it. */
static bool is_shortest(const nj_decimal *decimal, double number)
{
    char text[48], next[DECIMALS_MAX + 2];
    long long head = 0;
    if (decimal->count > 1) {
        /* with one digit fewer, the nearest decimals on both sides */
        int count = decimal->count - 1;
        memcpy(next, decimal->digits, (size_t)count);
        next[count] = 0;
        head = strtoll(next, NULL, 10);
        snprintf(text, sizeof text, "%lld", head + 1);
        int length = (int)strlen(text);
        if (nearest(decimal->digits, count, decimal->point) == number ||
            nearest(text, length, decimal->point + (length - count)) == number) {
            return false;
        }
    }
    /* printf rounds to the nearest decimal, which may read back as another double where doubles are closer on one side */
    snprintf(text, sizeof text, "%.*e", decimal->count - 1, number);
    int at = 0;
    for (const char *c = text; *c != 0 && *c != 'e'; c++) {
        if (is_digit((unsigned char)*c) && at < DECIMALS_MAX) {
            next[at++] = *c;
        }
    }
    const char *exponent = strchr(text, 'e');
    int point = exponent == NULL ? 0 : atoi(exponent + 1) + 1;
    bool same = at == decimal->count && memcmp(next, decimal->digits, (size_t)at) == 0 && point == decimal->point;
    return same || nearest(next, at, point) != number;
}

/* Collects the digits of a number and the position of its point. Returns false if it has too many digits. */
static bool collect(nj_span whole, nj_span part, nj_decimal *decimal)
{
    decimal->count = 0;
    decimal->point = (int)whole.size;
    for (size_t i = 0; i < whole.size + part.size; i++) {
        unsigned char digit = i < whole.size ? whole.at[i] : part.at[i - whole.size];
        if (decimal->count == 0 && digit == '0') {
            decimal->point--;
        } else if (decimal->count < DECIMALS_MAX) {
            decimal->digits[decimal->count++] = (char)digit;
        } else if (digit != '0') {
            return false;
        }
    }
    while (decimal->count > 0 && decimal->digits[decimal->count - 1] == '0') {
        decimal->count--;
    }
    decimal->digits[decimal->count] = 0;
    return true;
}

/* Writes a decimal number as Python's repr does. */
static void write(const nj_decimal *decimal, bool negative, char *text, size_t room)
{
    int exponent = decimal->point - 1;
    const char *sign = negative ? "-" : "", *digits = decimal->digits;
    if (decimal->count == 0) {
        snprintf(text, room, "%s0.0", sign);
    } else if (exponent < POINT_MIN || exponent >= POINT_MAX) {
        snprintf(text, room, "%s%c%s%se%c%02d", sign, digits[0], decimal->count > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+',
                 abs(exponent));
    } else if (decimal->point <= 0) {
        snprintf(text, room, "%s0.%.*s%s", sign, -decimal->point, "0000", digits);
    } else if (decimal->count <= decimal->point) {
        snprintf(text, room, "%s%s%.*s.0", sign, digits, decimal->point - decimal->count, "0000000000000000");
    } else {
        snprintf(text, room, "%s%.*s.%s", sign, decimal->point, digits, digits + decimal->point);
    }
}

bool nj_float_of_repr(nj_span text, double *number)
{
    nj_span rest = text;
    nj_decimal decimal;
    bool negative = pass(&rest, '-'), is_plain;
    if (is_word(rest, negative, number)) {
        return true;
    }
    nj_span whole = take_digits(&rest, false), part = {0};
    if (pass(&rest, '.')) {
        part = take_digits(&rest, false);
    }
    int exponent = 0;
    /* repr writes at most 24 characters */
    bool read = text.size < 32 && whole.size > 0 && collect(whole, part, &decimal) &&
                (rest.size == 0 || take_exponent(&rest, 'e', &exponent, &is_plain)) && rest.size == 0;
    if (!read) {
        return false;
    }
    char written[48];
    decimal.point += exponent;
    write(&decimal, negative, written, sizeof written);
    *number = decimal.count == 0 ? 0.0 : nearest(decimal.digits, decimal.count, decimal.point);
    bool is_one_spelling = nj_span_is(text, written) && !isinf(*number) && (decimal.count == 0 || *number != 0.0);
    bool right = is_one_spelling && (decimal.count == 0 || is_shortest(&decimal, *number));
    *number = negative ? -*number : *number;
    return right;
}
