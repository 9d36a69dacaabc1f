/* The tuning of a table: its tables by device, and the blocks of each. */
#ifndef NOJIT_TABLE_TUNING_H
#define NOJIT_TABLE_TUNING_H

#include "table/table_reader.h"

/* Takes `tuning`, once cases and configs are known. */
bool nj_take_tuning(nj_document *it, nj_table_reader *reader);

#endif
