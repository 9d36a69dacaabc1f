#include "bundle/json.h"

int nj_json_item(nj_json *json, bool first)
{
    if (nj_json_char(json, ']')) {
        return 0;
    }
    return first || nj_json_char(json, ',') ? 1 : -1;
}

bool nj_json_flag(nj_json *json, bool *flag)
{
    *flag = nj_json_is(json, "true");
    return *flag || nj_json_is(json, "false");
}

bool nj_json_int(nj_json *json, int64_t *number)
{
    bool negative = nj_json_char(json, '-');
    if (!nj_json_natural(json, number) || (negative && *number == 0)) {
        return false;
    }
    *number = negative ? -*number : *number;
    return true;
}

bool nj_json_count(nj_json *json, int64_t least, int64_t most, int64_t *number)
{
    return nj_json_int(json, number) && *number >= least && *number <= most;
}

/* What a byte may be part of: of a text as it is, of a name, of its start. */
enum { TEXT = 1, NAME = 2, START = 4 };

#define LETTER (TEXT | NAME | START)
#define INNER (TEXT | NAME)

static const unsigned char kinds[256] = {
    [' '] = TEXT,   ['!'] = TEXT,   ['#'] = TEXT,   ['$'] = TEXT,   ['%'] = TEXT,   ['&'] = TEXT,   ['\''] = TEXT,
    ['('] = TEXT,   [')'] = TEXT,   ['*'] = TEXT,   ['+'] = TEXT,   [','] = TEXT,   ['-'] = INNER,  ['.'] = INNER,
    ['/'] = TEXT,   ['0'] = INNER,  ['1'] = INNER,  ['2'] = INNER,  ['3'] = INNER,  ['4'] = INNER,  ['5'] = INNER,
    ['6'] = INNER,  ['7'] = INNER,  ['8'] = INNER,  ['9'] = INNER,  [':'] = TEXT,   [';'] = TEXT,   ['<'] = TEXT,
    ['='] = TEXT,   ['>'] = TEXT,   ['?'] = TEXT,   ['@'] = TEXT,   ['A'] = LETTER, ['B'] = LETTER, ['C'] = LETTER,
    ['D'] = LETTER, ['E'] = LETTER, ['F'] = LETTER, ['G'] = LETTER, ['H'] = LETTER, ['I'] = LETTER, ['J'] = LETTER,
    ['K'] = LETTER, ['L'] = LETTER, ['M'] = LETTER, ['N'] = LETTER, ['O'] = LETTER, ['P'] = LETTER, ['Q'] = LETTER,
    ['R'] = LETTER, ['S'] = LETTER, ['T'] = LETTER, ['U'] = LETTER, ['V'] = LETTER, ['W'] = LETTER, ['X'] = LETTER,
    ['Y'] = LETTER, ['Z'] = LETTER, ['['] = TEXT,   [']'] = TEXT,   ['^'] = TEXT,   ['_'] = LETTER, ['`'] = TEXT,
    ['a'] = LETTER, ['b'] = LETTER, ['c'] = LETTER, ['d'] = LETTER, ['e'] = LETTER, ['f'] = LETTER, ['g'] = LETTER,
    ['h'] = LETTER, ['i'] = LETTER, ['j'] = LETTER, ['k'] = LETTER, ['l'] = LETTER, ['m'] = LETTER, ['n'] = LETTER,
    ['o'] = LETTER, ['p'] = LETTER, ['q'] = LETTER, ['r'] = LETTER, ['s'] = LETTER, ['t'] = LETTER, ['u'] = LETTER,
    ['v'] = LETTER, ['w'] = LETTER, ['x'] = LETTER, ['y'] = LETTER, ['z'] = LETTER, ['{'] = TEXT,   ['|'] = TEXT,
    ['}'] = TEXT,   ['~'] = TEXT,
};

/* Takes a text all of whose bytes are of a kind. */
static bool take(nj_json *json, unsigned char kind, size_t most, nj_span *text)
{
    if (!nj_json_char(json, '"')) {
        return false;
    }
    const unsigned char *at = json->at;
    while (at < json->end && (kinds[*at] & kind) != 0) {
        at++;
    }
    *text = (nj_span){json->at, (size_t)(at - json->at)};
    json->at = at;
    return text->size <= most && nj_json_char(json, '"');
}

bool nj_json_text(nj_json *json, size_t most, nj_span *text)
{
    return take(json, TEXT, most, text);
}

bool nj_json_name(nj_json *json, nj_span *name)
{
    return take(json, NAME, NJ_NAME_MAX, name) && name->size > 0 && (kinds[name->at[0]] & START) != 0;
}

bool nj_json_object(nj_json *json, nj_span *object)
{
    const unsigned char *start = json->at;
    size_t depth = 0;
    if (json->at == json->end || *json->at != '{') {
        return false;
    }
    do {
        nj_span text;
        unsigned char c = *json->at;
        if (c == '"' && !nj_json_text(json, SIZE_MAX, &text)) {
            return false;
        }
        json->at += c != '"';
        depth += c == '[' || c == '{';
        depth -= c == ']' || c == '}';
    } while (depth > 0 && depth <= NJ_JSON_DEPTH_MAX && json->at < json->end);
    *object = (nj_span){start, (size_t)(json->at - start)};
    return depth == 0;
}
