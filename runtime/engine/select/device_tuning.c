#include "select/device_tuning.h"

#include "select/config_order.h"

#include <string.h>

static bool has_estimates(const nj_tuning_table *table)
{
    bool has = false;
    for (uint32_t i = 0; i < table->block_count; i++) {
        has |= table->blocks[i].estimate_count > 0;
    }
    return has;
}

bool nj_tuned_asks_device(const nj_tuning *tuning)
{
    return tuning->table_count > 1 || (tuning->table_count == 1 && has_estimates(&tuning->tables[0]));
}

nj_tuned nj_tuned_on(const nj_tuning *tuning, const nj_device_facts *device)
{
    if (tuning->table_count == 0) {
        return (nj_tuned){0};
    }
    if (device == NULL) {
        return (nj_tuned){&tuning->tables[0], (int64_t)tuning->tables[0].multiprocessors};
    }
    nj_span name = {(const unsigned char *)device->name, strlen(device->name)};
    size_t place = nj_closest_table(tuning, name, (uint64_t)device->multiprocessors, device->memory_bytes);
    return (nj_tuned){&tuning->tables[place], device->multiprocessors};
}
