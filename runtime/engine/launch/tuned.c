#include "launch/tuned.h"

#include "cuda/query.h"
#include "select/ranking.h"

#include <string.h>

static bool has_estimates(const nj_tuning_table *table)
{
    bool has = false;
    for (uint32_t i = 0; i < table->block_count; i++) {
        has |= table->blocks[i].estimate_count > 0;
    }
    return has;
}

bool nj_tuned_on(const nj_tuning *tuning, int device, nj_tuned *tuned, nj_error *error)
{
    *tuned = (nj_tuned){0};
    if (tuning->table_count == 0) {
        return true;
    }
    tuned->table = &tuning->tables[0];
    tuned->multiprocessors = (int64_t)tuned->table->multiprocessors;
    if (tuning->table_count > 1 || has_estimates(tuned->table)) {
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
