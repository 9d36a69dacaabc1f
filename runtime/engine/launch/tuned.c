#include "launch/tuned.h"

#include "driver/query.h"

#include <string.h>

static bool has_estimates(const nj_tuning_table *table)
{
    bool has = false;
    for (uint32_t i = 0; i < table->block_count; i++) {
        has |= table->blocks[i].estimate_count > 0;
    }
    return has;
}

nj_tuned nj_tuned_first(const nj_tuning *tuning)
{
    const nj_tuning_table *first = tuning->table_count == 0 ? NULL : &tuning->tables[0];
    return (nj_tuned){first, first == NULL ? 0 : (int64_t)first->multiprocessors};
}

bool nj_tuned_on(const nj_tuning *tuning, int device, nj_tuned *tuned, nj_error *error)
{
    *tuned = nj_tuned_first(tuning);
    if (tuned->table != NULL && (tuning->table_count > 1 || has_estimates(tuned->table))) {
        nj_device_facts facts;
        if (!nj_device_describe(device, &facts, error)) {
            return false;
        }
        nj_span name = {(const unsigned char *)facts.name, strlen(facts.name)};
        tuned->table = &tuning->tables[nj_closest_table(tuning, name, (uint64_t)facts.multiprocessors, facts.memory_bytes)];
        tuned->multiprocessors = facts.multiprocessors;
    }
    return true;
}
