#include "table/find_by_name.h"

size_t nj_param_place(const nj_table *table, nj_span name)
{
    size_t place = 0;
    while (place < table->param_count && !nj_span_equal(table->params[place].name, name)) {
        place++;
    }
    return place;
}

bool nj_is_axis(const nj_table *table, nj_span name)
{
    bool is = false;
    for (uint32_t i = 0; !is && i < table->axis_count; i++) {
        is = nj_span_equal(table->axes[i].name, name);
    }
    return is;
}

const nj_constant *nj_setting_value(const nj_setting *settings, uint32_t count, nj_span name)
{
    for (uint32_t i = count; i-- > 0;) {
        if (nj_span_equal(settings[i].name, name)) {
            return &settings[i].value;
        }
    }
    return NULL;
}

const nj_constant *nj_config_value(const nj_config *config, nj_span name)
{
    const nj_constant *value = nj_setting_value(config->options, config->option_count, name);
    return value != NULL ? value : nj_setting_value(config->constexprs, config->constexpr_count, name);
}

size_t nj_built_values(const nj_table *table, size_t place, const nj_constant **built, size_t room)
{
    nj_span name = table->params[place].name;
    size_t count = 0;
    for (uint32_t i = 0; i < table->axis_count; i++) {
        const nj_axis *axis = &table->axes[i];
        for (uint32_t value = 0; !axis->is_type && nj_span_equal(axis->name, name) && value < axis->count; value++, count++) {
            if (count < room) {
                built[count] = &axis->values[value];
            }
        }
    }
    for (uint32_t i = 0; i < table->config_count; i++) {
        const nj_constant *value = nj_setting_value(table->configs[i].constexprs, table->configs[i].constexpr_count, name);
        if (value != NULL && count++ < room) {
            built[count - 1] = value;
        }
    }
    if (table->params[place].has_default && count++ < room) {
        built[count - 1] = &table->params[place].fallback;
    }
    return count;
}
