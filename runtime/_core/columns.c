#include "columns.h"

#include "elf.h"

static uint32_t number_at(const unsigned char *columns, size_t rows, int column, size_t row)
{
    return nj_u32(columns + sizeof(uint32_t) * ((size_t)column * rows + row));
}

static bool ascends(const unsigned char *columns, size_t rows, size_t row)
{
    for (int column = 0; column < NJ_KEY_COLUMNS; column++) {
        uint32_t before = number_at(columns, rows, column, row - 1), here = number_at(columns, rows, column, row);
        if (before != here) {
            return before < here;
        }
    }
    return false;
}

bool nj_columns_right(const unsigned char *columns, size_t rows, const size_t sizes[NJ_POINTING_COLUMNS])
{
    for (int column = 0; column < NJ_POINTING_COLUMNS; column++) {
        for (size_t row = 0; row < rows; row++) {
            if (number_at(columns, rows, column, row) >= sizes[column]) {
                return false;
            }
        }
    }
    for (size_t row = 1; row < rows; row++) {
        if (!ascends(columns, rows, row)) {
            return false;
        }
    }
    return true;
}
