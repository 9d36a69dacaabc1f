/* The configs that `nj_kernel_config` returns: constants as nj_arg, texts NUL-terminated. */
#include "api/kernel.h"
#include "base/texts.h"

#include <stdlib.h>

struct nj_kernel_configs {
    const nj_keyword **configs; /* the settings of each config */
    nj_keyword *settings;
    nj_arg *items;
    char *texts;
};

/* The numbers of settings, tuple members and characters to allocate. */
typedef struct {
    size_t settings, items, chars;
} settings_room;

/* Where the next setting, tuple member and text are written. */
typedef struct {
    nj_keyword *setting;
    nj_arg *item;
    char *text;
} settings_pen;

static void measure(const nj_constant *value, settings_room *room)
{
    if (value->kind >= NJ_CONSTANT_TEXT && value->kind <= NJ_CONSTANT_FUNCTION) {
        room->chars += value->text.size + 1;
    }
    for (uint32_t i = 0; value->kind == NJ_CONSTANT_TUPLE && i < value->count; i++) {
        room->items++;
        measure(&value->items[i], room);
    }
}

static nj_arg write_int(const nj_constant *value)
{
    if (value->negative) {
        return nj_arg_int((int64_t)(0 - value->magnitude));
    }
    return value->magnitude > INT64_MAX ? nj_arg_uint(value->magnitude) : nj_arg_int((int64_t)value->magnitude);
}

static nj_arg write_value(const nj_constant *value, settings_pen *pen)
{
    static const nj_arg_kind kinds[] = {
        [NJ_CONSTANT_TEXT] = NJ_ARG_TEXT, [NJ_CONSTANT_DTYPE] = NJ_ARG_DTYPE, [NJ_CONSTANT_FUNCTION] = NJ_ARG_FUNCTION};
    nj_arg *items;
    switch (value->kind) {
    case NJ_CONSTANT_NONE: return nj_arg_none();
    case NJ_CONSTANT_BOOL: return nj_arg_bool(value->truth);
    case NJ_CONSTANT_INT: return write_int(value);
    case NJ_CONSTANT_FLOAT: return nj_arg_float(value->number);
    case NJ_CONSTANT_TUPLE:
        items = pen->item;
        pen->item += value->count;
        for (uint32_t i = 0; i < value->count; i++) {
            items[i] = write_value(&value->items[i], pen);
        }
        return nj_arg_tuple(items, value->count);
    default: {
        nj_arg arg = nj_arg_of(kinds[value->kind]);
        arg.text = nj_text_put(&pen->text, value->text);
        return arg;
    }
    }
}

static const nj_setting *setting_of(const nj_config *config, uint32_t number)
{
    return number < config->constexpr_count ? &config->constexprs[number] : &config->options[number - config->constexpr_count];
}

static void write_configs(const nj_table *table, nj_kernel_configs *it)
{
    settings_pen pen = {it->settings, it->items, it->texts};
    for (uint32_t i = 0; i < table->config_count; i++) {
        const nj_config *config = &table->configs[i];
        it->configs[i] = pen.setting;
        for (uint32_t j = 0; j < config->constexpr_count + config->option_count; j++) {
            const nj_setting *setting = setting_of(config, j);
            const char *name = nj_text_put(&pen.text, setting->name);
            *pen.setting++ = (nj_keyword){name, write_value(&setting->value, &pen)};
        }
    }
}

static void free_configs(nj_kernel_configs *it)
{
    if (it != NULL) {
        free(it->configs);
        free(it->settings);
        free(it->items);
        free(it->texts);
        free(it);
    }
}

/* Returns a copy of all configs, to be freed with `free_configs`; NULL if memory runs out. */
static nj_kernel_configs *make_configs(const nj_table *table)
{
    settings_room room = {0};
    for (uint32_t i = 0; i < table->config_count; i++) {
        const nj_config *config = &table->configs[i];
        for (uint32_t j = 0; j < config->constexpr_count + config->option_count; j++) {
            const nj_setting *setting = setting_of(config, j);
            room.settings++;
            room.chars += setting->name.size + 1;
            measure(&setting->value, &room);
        }
    }
    nj_kernel_configs *it = calloc(1, sizeof *it);
    if (it == NULL) {
        return NULL;
    }
    it->configs = malloc((table->config_count + 1) * sizeof *it->configs);
    it->settings = malloc((room.settings + 1) * sizeof *it->settings);
    it->items = malloc((room.items + 1) * sizeof *it->items);
    it->texts = malloc(room.chars + 1);
    if (it->configs == NULL || it->settings == NULL || it->items == NULL || it->texts == NULL) {
        free_configs(it);
        return NULL;
    }
    write_configs(table, it);
    return it;
}

/* Returns the kernel's copy of its configs; the first call makes it. NULL if memory runs out. */
static nj_kernel_configs *find_configs(const nj_kernel *kernel)
{
    nj_kernel_configs *known = atomic_load_explicit(kernel->configs, memory_order_acquire);
    if (known != NULL) {
        return known;
    }
    nj_kernel_configs *made = make_configs(&kernel->table);
    if (made != NULL && !atomic_compare_exchange_strong(kernel->configs, &known, made)) {
        free_configs(made); /* another thread added its own first */
        made = known;
    }
    return made;
}

nj_code nj_kernel_config(const nj_kernel *kernel, size_t number, nj_config_info *info, nj_error *error)
{
    static const nj_sized sized = {"nj_config_info", sizeof *info, NJ_END_OF(nj_config_info, setting_count), -1};
    const nj_table *table = &kernel->table;
    if (number >= table->config_count) {
        return nj_refuse_number(kernel, number, table->config_count, "configs", error);
    }
    const nj_kernel_configs *made = find_configs(kernel);
    if (made == NULL) {
        nj_no_memory(error);
        return NJ_ERROR_MEMORY;
    }
    const nj_config *config = &table->configs[number];
    nj_config_info all = {sizeof all, made->configs[number], config->constexpr_count + config->option_count};
    return nj_sized_fill(&sized, info, &all, error);
}

void nj_kernel_close_configs(nj_kernel *kernel)
{
    if (kernel->configs != NULL) {
        free_configs(atomic_load(kernel->configs));
        free(kernel->configs);
    }
}
