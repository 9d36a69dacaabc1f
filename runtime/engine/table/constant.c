#include "table/constant.h"

#include "table/number_text.h"
#include "table/type_name.h"

enum { TUPLE_ITEMS_MAX = 64 };

typedef struct {
    nj_arena *arena;
    nj_constant *value;
    int depth; /* number of tuples around it */
} nj_frame;

static bool take_value(nj_document *it, nj_frame *frame);

static bool take_int(nj_document *it, nj_constant *value)
{
    nj_integer number;
    if (!nj_take_integer(it, &number)) {
        return false;
    }
    *value = (nj_constant){.kind = NJ_CONSTANT_INT, .negative = number.negative, .magnitude = number.magnitude};
    return number.fits || nj_break(it->error, "size", nj_integer_text(&number).text, "expected an integer of at most 64 bits");
}

static bool take_float(nj_document *it, void *into)
{
    nj_constant *value = ((nj_frame *)into)->value;
    nj_span text;
    if (!nj_take_text(it, &text)) {
        return false;
    }
    value->kind = NJ_CONSTANT_FLOAT;
    switch (nj_float_of_hex(text, &value->number)) {
    case NJ_FLOAT_CANONICAL: return true;
    case NJ_FLOAT_NONE: return nj_break(it->error, "type", nj_quote(text).text, "expected a hexadecimal float");
    default: return nj_break(it->error, "json-canonical", nj_quote(text).text, "expected a float spelled as 0x1.8000000000000p+0");
    }
}

static bool take_dtype(nj_document *it, void *into)
{
    nj_constant *value = ((nj_frame *)into)->value;
    value->kind = NJ_CONSTANT_DTYPE;
    return nj_take_text(it, &value->text);
}

static bool take_function(nj_document *it, void *into)
{
    nj_constant *value = ((nj_frame *)into)->value;
    value->kind = NJ_CONSTANT_FUNCTION;
    return nj_take_text(it, &value->text);
}

static bool take_item(nj_document *it, void *into)
{
    nj_frame *tuple = into;
    nj_constant item = {0};
    nj_frame frame = {tuple->arena, &item, tuple->depth};
    return take_value(it, &frame) && (nj_arena_add(tuple->arena, &item, sizeof item) || nj_no_memory(it->error));
}

/* Takes an array of values with `depth` tuples around them. */
static bool take_items(nj_document *it, nj_arena *arena, int depth, size_t most, const nj_constant **values, uint32_t *count)
{
    nj_frame frame = {arena, NULL, depth};
    size_t mark = nj_arena_start(arena);
    if (!nj_take_array(it, most, take_item, &frame)) {
        return false;
    }
    *values = nj_arena_end(arena, mark, sizeof **values, count);
    return *values != NULL || nj_no_memory(it->error);
}

static bool take_tuple(nj_document *it, void *into)
{
    nj_frame *frame = into;
    const nj_constant *items;
    uint32_t count;
    if (frame->depth == NJ_TUPLE_DEPTH_MAX) {
        return nj_break(it->error, "json-depth", "more", "expected tuples nested at most %d deep", NJ_TUPLE_DEPTH_MAX);
    }
    if (!take_items(it, frame->arena, frame->depth + 1, TUPLE_ITEMS_MAX, &items, &count)) {
        return false;
    }
    *frame->value = (nj_constant){.kind = NJ_CONSTANT_TUPLE, .count = count, .items = items};
    return true;
}

/* Takes an object that names the kind of its value, such as `{"float": text}`. */
static bool take_tagged(nj_document *it, nj_frame *frame)
{
    static const nj_field tags[] = {{"dtype", take_dtype}, {"float", take_float}, {"function", take_function}, {"tuple", take_tuple}};
    nj_span tag = nj_peek_key(it);
    if (!nj_has_one_key(it)) {
        return nj_break(it->error, "type", "an object", "expected a constexpr value");
    }
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (nj_span_is(tag, tags[i].name)) {
            return nj_take_object(it, &tags[i], 1, frame);
        }
    }
    return nj_break(it->error, "type", nj_quote(tag).text, "expected float, dtype, function or tuple");
}

static bool take_value(nj_document *it, nj_frame *frame)
{
    nj_constant *value = frame->value;
    *value = (nj_constant){.kind = NJ_CONSTANT_NONE};
    switch (it->at < it->end ? *it->at : 0) {
    case '"': value->kind = NJ_CONSTANT_TEXT; return nj_take_text(it, &value->text);
    case 'n': return nj_take_null(it);
    case 't':
    case 'f': value->kind = NJ_CONSTANT_BOOL; return nj_take_flag(it, &value->truth);
    case '{': return take_tagged(it, frame);
    case '[': return nj_break(it->error, "type", "an array", "expected a constexpr value");
    default: return take_int(it, value);
    }
}

bool nj_take_constant(nj_document *it, nj_arena *arena, nj_constant *value)
{
    nj_frame frame = {arena, value, 0};
    return take_value(it, &frame);
}

bool nj_take_constants(nj_document *it, nj_arena *arena, size_t most, const nj_constant **values, uint32_t *count)
{
    return take_items(it, arena, 0, most, values, count);
}

static bool take_lone(nj_document *it, void *frame)
{
    return take_value(it, frame);
}

bool nj_constant_read(nj_span raw, nj_lone_constant *constant, nj_error *error)
{
    nj_arena arena = {0};
    nj_frame frame = {&arena, &constant->value, 0};
    *constant = (nj_lone_constant){.memory = NULL};
    bool read = nj_document_take(&constant->document, raw, take_lone, &frame, error);
    constant->memory = nj_arena_keep(&arena);
    constant->document.error = NULL;
    return read;
}

void nj_constant_close(nj_lone_constant *constant)
{
    nj_document_close(&constant->document);
    nj_arena_free(constant->memory);
    constant->memory = NULL;
}
