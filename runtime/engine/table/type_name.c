#include "table/type_name.h"

#include "json/limits.h"
#include "table/number_text.h"

#define DESCRIPTOR "tensordesc<"

enum {
    BLOCK_MAX = 1 << 20,
    BLOCK_DIGITS_MAX = 7,
    INT_CHARS_MAX = 21, /* an int of 64 bits with its sign */
};

static nj_span from(nj_span text, size_t start)
{
    return (nj_span){text.at + start, text.size - start};
}

static bool starts_with(nj_span text, const char *start)
{
    size_t length = strlen(start);
    return text.size >= length && memcmp(text.at, start, length) == 0;
}

bool nj_is_descriptor_name(nj_span type)
{
    return starts_with(type, DESCRIPTOR);
}

/* Takes a dimension of a block: 1 to 2^20. */
static bool take_dimension(nj_span *rest, uint32_t *dimension)
{
    size_t count = 0;
    *dimension = 0;
    for (; count < rest->size && rest->at[count] >= '0' && rest->at[count] <= '9'; count++) {
        if (count == BLOCK_DIGITS_MAX) {
            return false;
        }
        *dimension = 10 * *dimension + (uint32_t)(rest->at[count] - '0');
    }
    bool plain = count > 0 && rest->at[0] != '0';
    *rest = from(*rest, count);
    return plain && *dimension <= BLOCK_MAX;
}

/* Splits the type of a descriptor into its parts; false if the spelling is wrong. */
static bool read_descriptor(nj_span type, nj_descriptor_name *parts)
{
    *parts = (nj_descriptor_name){.dtype = NJ_DTYPE_COUNT};
    nj_span rest = from(type, strlen(DESCRIPTOR));
    const unsigned char *bracket = rest.size == 0 ? NULL : memchr(rest.at, '[', rest.size);
    if (bracket == NULL) {
        return false;
    }
    parts->element = (nj_span){rest.at, (size_t)(bracket - rest.at)};
    parts->dtype = nj_dtype_of(parts->element);
    rest = from(rest, parts->element.size);
    do {
        rest = from(rest, 1);
        if (parts->rank == NJ_DESCRIPTOR_RANK_MAX || !take_dimension(&rest, &parts->block[parts->rank])) {
            return false;
        }
        parts->rank++;
    } while (rest.size > 0 && rest.at[0] == ',');
    return parts->dtype != NJ_DTYPE_COUNT && nj_span_is(rest, "]>");
}

nj_descriptor_name nj_descriptor_parts(nj_span type)
{
    nj_descriptor_name parts;
    read_descriptor(type, &parts);
    return parts;
}

static bool is_plain(unsigned char c)
{
    unsigned char lower = c | 0x20;
    return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || (c != 0 && strchr("_.:/-", c) != NULL);
}

size_t nj_escape(nj_span text, char *escaped)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t size = 0;
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = text.at[i];
        if (is_plain(c)) {
            escaped[size++] = (char)c;
        } else {
            escaped[size++] = '%';
            escaped[size++] = digits[c >> 4];
            escaped[size++] = digits[c & 15];
        }
    }
    return size;
}

/* Returns the value of an upper-case hex digit; -1 for any other character. */
static int capital_digit(unsigned char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Returns the bytes of the first code point of a text; 0 if it is not valid UTF-8. */
static size_t utf8_length(nj_span text)
{
    unsigned char lead = text.at[0];
    size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length == 0 || length > text.size) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((text.at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    unsigned char next = length > 1 ? text.at[1] : 0;
    bool too_long = (lead == 0xe0 && next < 0xa0) || (lead == 0xf0 && next < 0x90);
    bool is_surrogate = lead == 0xed && next > 0x9f, is_past_all = lead == 0xf4 && next > 0x8f;
    return too_long || is_surrogate || is_past_all ? 0 : length;
}

static bool is_utf8(nj_span text)
{
    while (text.size > 0) {
        size_t length = utf8_length(text);
        if (length == 0) {
            return false;
        }
        text = from(text, length);
    }
    return true;
}

/* Decodes the text of a constant. False if it escapes a plain character, or leaves any other unescaped. `decoded` may be NULL. */
static bool decode(nj_span text, unsigned char *decoded, nj_span *value)
{
    size_t size = 0;
    *value = text;
    for (size_t i = 0; i < text.size; i++, size++) {
        unsigned char c = text.at[i];
        if (c == '%') {
            int high = text.size - i < 3 ? -1 : capital_digit(text.at[i + 1]), low = high < 0 ? -1 : capital_digit(text.at[i + 2]);
            c = (unsigned char)(16 * high + low);
            if (low < 0 || is_plain(c)) {
                return false;
            }
            i += 2;
        } else if (!is_plain(c)) {
            return false;
        }
        decoded[size] = c;
    }
    *value = (nj_span){decoded, size};
    return is_utf8(*value);
}

static bool read_int(nj_span text, nj_constant *value)
{
    bool negative = text.size > 0 && text.at[0] == '-';
    nj_span digits = from(text, negative);
    *value = (nj_constant){.kind = NJ_CONSTANT_INT, .negative = negative};
    if (digits.size == 0 || text.size > INT_CHARS_MAX || (digits.at[0] == '0' && (digits.size > 1 || negative))) {
        return false;
    }
    for (size_t i = 0; i < digits.size; i++) {
        unsigned digit = (unsigned)digits.at[i] - '0';
        if (digit > 9 || value->magnitude > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value->magnitude = 10 * value->magnitude + digit;
    }
    return true;
}

bool nj_type_constant(nj_span type, unsigned char *decoded, nj_constant *value)
{
    static const struct {
        const char *start;
        nj_constant_kind kind;
    } texts[] = {{"'", NJ_CONSTANT_TEXT}, {"dtype:", NJ_CONSTANT_DTYPE}, {"function:", NJ_CONSTANT_FUNCTION}};
    nj_span text = from(type, 1);
    if (nj_span_is(text, "true") || nj_span_is(text, "false")) {
        *value = (nj_constant){.kind = NJ_CONSTANT_BOOL, .truth = text.size == strlen("true")};
        return true;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (starts_with(text, texts[i].start)) {
            nj_span inner = from(text, strlen(texts[i].start));
            bool quoted = texts[i].kind == NJ_CONSTANT_TEXT;
            if (quoted && (inner.size == 0 || inner.at[inner.size - 1] != '\'')) {
                return false;
            }
            inner.size -= quoted;
            *value = (nj_constant){.kind = (uint8_t)texts[i].kind};
            return decode(inner, decoded, &value->text);
        }
    }
    if (read_int(text, value)) {
        return true;
    }
    *value = (nj_constant){.kind = NJ_CONSTANT_FLOAT};
    return nj_float_of_repr(text, &value->number);
}

static bool is_constant(nj_span type)
{
    unsigned char decoded[NJ_TEXT_MAX];
    nj_constant value;
    return type.size <= sizeof decoded && nj_type_constant(type, decoded, &value);
}

/* Returns the number of values that a call has for a tuple: its leaves and inner tuples. */
static size_t values_of(nj_span text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++) {
        count += text.at[i] == ',' || (text.at[i] == '(' && text.at[i + 1] != ')');
    }
    return count;
}

bool nj_next_member(nj_span *rest, nj_span *member)
{
    size_t end = 0;
    int depth = 0;
    if (rest->size == 0) {
        return false;
    }
    for (; end < rest->size; end++) {
        unsigned char c = rest->at[end];
        if (c == ',' && depth == 0) {
            break;
        }
        depth += (c == '(' || c == '[' || c == '<') - (c == ')' || c == ']' || c == '>');
    }
    *member = (nj_span){rest->at, end};
    /* is_tuple refuses a comma at the end, after which this finds no member */
    *rest = from(*rest, end + (end < rest->size));
    return true;
}

static nj_span members_of(nj_span tuple)
{
    /* a lone parenthesis is no type; it gets no members */
    return (nj_span){tuple.at + 1, tuple.size < 2 ? 0 : tuple.size - 2};
}

static bool is_type(nj_span text, int depth);

static bool is_tuple(nj_span text, int depth)
{
    if (text.size < 2 || text.at[text.size - 1] != ')' || depth == NJ_TUPLE_DEPTH_MAX) {
        return false;
    }
    nj_span rest = members_of(text), member;
    bool right = rest.size == 0 || rest.at[rest.size - 1] != ',';
    while (right && nj_next_member(&rest, &member)) {
        right = is_type(member, depth + 1);
    }
    return right;
}

static bool is_type(nj_span text, int depth)
{
    if (text.size > 0 && text.at[0] == '*') {
        size_t start = 1 + (text.size > 1 && text.at[1] == 'k');
        return nj_dtype_of(from(text, start)) != NJ_DTYPE_COUNT;
    }
    if (nj_is_constant_type(text)) {
        return is_constant(text);
    }
    if (nj_is_tuple_type(text)) {
        return is_tuple(text, depth);
    }
    if (nj_is_descriptor_name(text)) {
        nj_descriptor_name parts;
        return read_descriptor(text, &parts);
    }
    return nj_dtypes[nj_dtype_of(text)].is_scalar || nj_span_is(text, "none");
}

bool nj_is_type(nj_span text)
{
    return is_type(text, 0) && (!nj_is_tuple_type(text) || values_of(text) <= NJ_LEAVES_MAX);
}

typedef struct {
    unsigned char text[NJ_PATH_BYTES_MAX];
    size_t size;
} nj_path;

/* Appends a place to a path; false if the path becomes longer than any in a table. */
static bool add_place(nj_path *path, size_t place)
{
    char digits[24];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + place % 10);
        place /= 10;
    } while (place > 0);
    if (path->size + 1 + count > sizeof path->text) {
        return false;
    }
    path->text[path->size++] = '.';
    while (count > 0) {
        path->text[path->size++] = (unsigned char)digits[--count];
    }
    return true;
}

static bool walk(nj_span type, nj_path *path, nj_leaf_taker take, void *context)
{
    if (!nj_is_tuple_type(type)) {
        return take(context, (nj_span){path->text, path->size}, type);
    }
    nj_span rest = members_of(type), member;
    size_t size = path->size;
    for (size_t place = 0; nj_next_member(&rest, &member); place++) {
        path->size = size;
        if (!add_place(path, place) || !walk(member, path, take, context)) {
            return false;
        }
    }
    return true;
}

bool nj_walk_leaves(nj_span type, nj_span name, nj_leaf_taker take, void *context)
{
    nj_path path = {.size = name.size};
    if (name.size > sizeof path.text) {
        return false;
    }
    memcpy(path.text, name.at, name.size);
    return walk(type, &path, take, context);
}
