#include "json/text.h"

#include "json/limits.h"

/* The code points of Unicode 15 in the categories Cc, Cf, Co, Cs, Zl, Zp and Zs, except the space. The list is fixed, because the bundle
 * format must not depend on the reader's version of Unicode. */
static const struct {
    uint32_t first, last;
} unprintable[] = {
    {0x0, 0x1f},         {0x7f, 0xa0},        {0xad, 0xad},         {0x600, 0x605},      {0x61c, 0x61c},
    {0x6dd, 0x6dd},      {0x70f, 0x70f},      {0x890, 0x891},       {0x8e2, 0x8e2},      {0x1680, 0x1680},
    {0x180e, 0x180e},    {0x2000, 0x200f},    {0x2028, 0x202f},     {0x205f, 0x2064},    {0x2066, 0x206f},
    {0x3000, 0x3000},    {0xd800, 0xf8ff},    {0xfeff, 0xfeff},     {0xfff9, 0xfffb},    {0x110bd, 0x110bd},
    {0x110cd, 0x110cd},  {0x13430, 0x1343f},  {0x1bca0, 0x1bca3},   {0x1d173, 0x1d17a},  {0xe0001, 0xe0001},
    {0xe0020, 0xe007f},  {0xf0000, 0xffffd},  {0x100000, 0x10fffd},
};

static bool is_printable(uint32_t point)
{
    size_t low = 0, high = sizeof unprintable / sizeof *unprintable;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (point > unprintable[middle].last) {
            low = middle + 1;
        } else if (point < unprintable[middle].first) {
            high = middle;
        } else {
            return false;
        }
    }
    return true;
}

/* Takes the next code point of UTF-8. Invalid bytes give an arbitrary code point, but no read past the end. */
static uint32_t next_of_utf8(nj_span *rest)
{
    unsigned char lead = rest->at[0];
    size_t more = lead < 0xc0 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3, i = 1;
    uint32_t point = more == 0 ? lead : lead & (0x3fu >> more);
    for (; i <= more && i < rest->size; i++) {
        point = point << 6 | (rest->at[i] & 0x3f);
    }
    *rest = (nj_span){rest->at + i, rest->size - i};
    return point;
}

bool nj_is_printable(nj_span utf8)
{
    bool printable = true;
    while (printable && utf8.size > 0) {
        unsigned char c = utf8.at[0];
        if (c >= ' ' && c < 0x7f) {
            utf8 = (nj_span){utf8.at + 1, utf8.size - 1};
        } else {
            printable = is_printable(next_of_utf8(&utf8));
        }
    }
    return printable;
}

bool nj_is_name(nj_span text)
{
    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = text.at[i], lower = c | 0x20;
        bool starts = (lower >= 'a' && lower <= 'z') || c == '_';
        bool follows = (c >= '0' && c <= '9') || c == '.' || c == '-';
        if (!starts && (!follows || i == 0)) {
            return false;
        }
    }
    return text.size > 0 && text.size <= NJ_NAME_MAX;
}

static uint32_t hex4(const unsigned char *at)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        value = value << 4 | (uint32_t)(at[i] <= '9' ? at[i] - '0' : (at[i] | 0x20) - 'a' + 10);
    }
    return value;
}

uint32_t nj_text_next(nj_span *rest)
{
    const unsigned char *at = rest->at;
    size_t taken = 1;
    uint32_t point = at[0];
    if (point == '\\') {
        static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
        const char *letter = at[1] == 'u' ? NULL : strchr(letters, at[1]);
        taken = 2;
        point = letter == NULL ? at[1] : (unsigned char)meant[letter - letters];
        if (at[1] == 'u') {
            taken = 6;
            point = hex4(at + 2);
            if (point >= 0xd800 && point < 0xdc00) {
                taken = 12;
                point = 0x10000 + ((point - 0xd800) << 10) + (hex4(at + 8) - 0xdc00);
            }
        }
    }
    *rest = (nj_span){at + taken, rest->size - taken};
    return point;
}

bool nj_text_ascends(nj_span before, nj_span text)
{
    size_t same = 0;
    while (same < before.size && same < text.size && before.at[same] == text.at[same] && text.at[same] != '\\') {
        same++;
    }
    before = (nj_span){before.at + same, before.size - same};
    text = (nj_span){text.at + same, text.size - same};
    while (before.size > 0 && text.size > 0) {
        uint32_t left = nj_text_next(&before), right = nj_text_next(&text);
        if (left != right) {
            return left < right;
        }
    }
    return text.size > 0;
}

size_t nj_text_decode(nj_span text, unsigned char *to)
{
    unsigned char *start = to;
    while (text.size > 0) {
        uint32_t point = nj_text_next(&text);
        if (point < 0x80) {
            *to++ = (unsigned char)point;
            continue;
        }
        if (point < 0x800) {
            *to++ = (unsigned char)(0xc0 | point >> 6);
        } else if (point < 0x10000) {
            *to++ = (unsigned char)(0xe0 | point >> 12);
            *to++ = (unsigned char)(0x80 | (point >> 6 & 0x3f));
        } else {
            *to++ = (unsigned char)(0xf0 | point >> 18);
            *to++ = (unsigned char)(0x80 | (point >> 12 & 0x3f));
            *to++ = (unsigned char)(0x80 | (point >> 6 & 0x3f));
        }
        *to++ = (unsigned char)(0x80 | (point & 0x3f));
    }
    return (size_t)(to - start);
}
