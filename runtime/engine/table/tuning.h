/* Reads the tuning of a table: a tuning table for each measured device, and its blocks. */
#ifndef NOJIT_TABLE_TUNING_H
#define NOJIT_TABLE_TUNING_H

#include "table/table_reader.h"

/* Takes the field `tuning`. Cases and configs must be known. */
bool nj_take_tuning(nj_document *it, nj_table_reader *reader);

#endif
