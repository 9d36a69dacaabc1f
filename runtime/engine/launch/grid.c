#include "launch/grid.h"

#include <stdlib.h>

#define GRID_X_MAX INT64_C(0x7fffffff)
#define GRID_YZ_MAX INT64_C(65535)

bool nj_runnable_read_grid(nj_runnable *runnable, const nj_runnable_facts *facts, nj_error *error)
{
    for (int i = 0; i < facts->grid_count && i < 3; i++) {
        size_t bytes = facts->grid[i].length * sizeof *facts->grid[i].code;
        nj_instruction *code = malloc(bytes + 1);
        if (code == NULL) {
            return nj_no_memory(error);
        }
        memcpy(code, facts->grid[i].code, bytes);
        runnable->grid[i] = (nj_program){facts->grid[i].length, code};
        runnable->grid_count++;
    }
    return true;
}

int nj_runnable_grid(const nj_runnable *runnable, const nj_value *values, int64_t grid[3])
{
    grid[0] = grid[1] = grid[2] = 1;
    for (int i = 0; i < runnable->grid_count; i++) {
        nj_value result;
        if (!nj_run(&runnable->grid[i], values, &result, NULL) || result.tag != NJ_TAG_INT) {
            return i;
        }
        grid[i] = result.bits;
    }
    return -1;
}

static __attribute__((noinline, cold)) bool refuse_size(int dimension, int64_t size, int64_t most, nj_error *error)
{
    nj_note_argument(error, -1, nj_format("%lld", (long long)size).text, "expected 0 to %lld", (long long)most);
    return nj_at(error, nj_format("grid[%d]", dimension).text);
}

bool nj_launch_size(const nj_runnable *runnable, const int64_t grid[3], nj_launch_state *launch, nj_error *error)
{
    const int64_t limits[3] = {GRID_X_MAX / runnable->num_ctas, GRID_YZ_MAX, GRID_YZ_MAX};
    for (int i = 0; i < 3; i++) {
        if (grid[i] < 0 || grid[i] > limits[i]) {
            return refuse_size(i, grid[i], limits[i], error);
        }
        launch->grid[i] = (unsigned int)grid[i];
    }
    launch->grid[0] *= runnable->num_ctas;
    return true;
}
