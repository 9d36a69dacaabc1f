/* The variant table of one kernel (docs/bundle-format.md, chapter 7): pools of distinct facts, and rows of indices into them.
 * Immutable once it is read; texts lie in the bytes that it was read from, or in its document. */
#ifndef NOJIT_TABLE_TABLE_H
#define NOJIT_TABLE_TABLE_H

#include "base/cursor.h"
#include "json/document.h"
#include "table/constant.h"

/* The columns of a row, in the order of the file. Rows ascend by the first four. */
typedef enum {
    NJ_COLUMN_CASE,
    NJ_COLUMN_CONFIG,
    NJ_COLUMN_HINTS,
    NJ_COLUMN_DERIVED,
    NJ_COLUMN_LAUNCH,
    NJ_COLUMN_IMAGE,
    NJ_COLUMN_REGISTERS,
    NJ_COLUMN_SPILL_BYTES,
    NJ_COLUMN_COUNT,
} nj_column;

enum { NJ_KEY_COLUMNS = NJ_COLUMN_DERIVED + 1 };

extern NJ_FOR_BINDING const char *const nj_column_names[NJ_COLUMN_COUNT];

/* A param of the kernel function. */
typedef struct {
    nj_span name;
    bool is_constexpr;
    bool has_default; /* the empty tuple of a runtime param marks `*args` */
    nj_constant fallback;
} nj_param;

/* An axis of the matrix. */
typedef struct {
    nj_span name;
    bool is_type; /* whether its values are parts of types; else it is a constexpr param that callers pass */
    uint32_t count;
    const nj_constant *values;
} nj_axis;

/* A constexpr or an option, with its value. */
typedef struct {
    nj_span name;
    nj_constant value;
} nj_setting;

typedef struct {
    uint32_t constexpr_count, option_count;
    const nj_setting *constexprs;
    const nj_setting *options;
    nj_span requires; /* empty if the config can always run */
    int32_t requires_program; /* index of its program; -1 without one */
} nj_config;

/* A constexpr that is computed from the call and the config. */
typedef struct {
    nj_span name, expression;
} nj_derived;

/* A point of the matrix: the types of a call, and its value on each axis. */
typedef struct {
    uint32_t signature;
    const uint32_t *places; /* for each axis, an index into its values */
} nj_case;

typedef struct {
    nj_span leaf;  /* x, or x.1.0 */
    uint8_t value; /* 1: equals 1; 16: divisible by 16 */
} nj_hint;

typedef struct {
    uint32_t count;
    const nj_hint *hints;
} nj_hint_set;

/* A measured problem. */
typedef struct {
    const int64_t *at; /* its tuning key */
    uint32_t count;
    const uint32_t *configs; /* fastest first */
    const uint32_t *behind;  /* for each config: how much slower than the fastest, in thousandths of an octave */
} nj_problem;

/* The estimated time of a config. */
typedef struct {
    uint32_t config;
    nj_span picoseconds; /* postfix over key0 to key7 and multiprocessors */
} nj_estimate;

/* Cases with common measurements. */
typedef struct {
    uint32_t case_count, problem_count, estimate_count;
    const uint32_t *cases; /* ascending */
    const nj_problem *problems; /* ascending by key values */
    const nj_estimate *estimates;
    nj_span problems_text, estimates_text; /* the JSON of both; the latter is empty without estimates */
} nj_tuning_block;

/* The measurements of one device. */
typedef struct {
    nj_span device, arch;
    uint64_t multiprocessors, memory_bytes;
    uint32_t block_count;
    const nj_tuning_block *blocks;
} nj_tuning_table;

typedef enum {
    NJ_BUCKET_POW2,
    NJ_BUCKET_QUARTER_POW2,
    NJ_BUCKET_EXACT,
    NJ_BUCKET_SIXTEENTH_POW2,
    NJ_BUCKET_COUNT,
} nj_bucket;

/* The names of buckets in tables and manifests. */
extern NJ_FOR_BINDING const char *const nj_bucket_names[NJ_BUCKET_COUNT];

/* Finds a bucket by its name; false if it is none. */
NJ_FOR_BINDING bool nj_bucket_named(nj_span name, nj_bucket *bucket);

#define NJ_TUNING_KEYS_MAX 8
#define NJ_BEHIND_MAX 100000 /* the largest `behind` of a problem, in thousandths of an octave */

typedef struct {
    uint32_t key_count, table_count; /* without a key, nothing orders the configs */
    nj_span key[NJ_TUNING_KEYS_MAX];
    nj_bucket bucket;
    const nj_tuning_table *tables;
} nj_tuning;

typedef struct {
    nj_span raw; /* the JSON of one launch, which `nj_table_launch` reads when a call needs it */
} nj_launch_text;

typedef struct nj_table {
    nj_document document;
    void *memory; /* memory of all arrays; owned */
    uint32_t param_count, runtime_count, axis_count, derived_count, grid_count, batch_count;
    uint32_t signature_count, case_count, config_count, hint_set_count, derived_value_count, layout_count, launch_count,
        program_count;
    const nj_param *params;
    const nj_axis *axes;
    const nj_derived *derived;
    const nj_span *grid; /* expressions */
    const nj_span *batch; /* names of params */
    const nj_span *const *signatures; /* each has `runtime_count` types */
    const nj_case *cases;
    const nj_config *configs; /* in order of preference */
    const nj_hint_set *hint_sets;
    const nj_constant *const *derived_values; /* each has `derived_count` values */
    const nj_span *layouts;
    const nj_launch_text *launches;
    const nj_span *programs; /* postfix of the grid, of derived constexprs, of the tuning key, of each `requires` */
    nj_tuning tuning;
    size_t rows;
    const unsigned char *columns; /* NJ_COLUMN_COUNT arrays of `rows` little-endian u32 */
} nj_table;

/* Reads a table and checks its rules. `raw` must outlive it, because the texts lie there. Returns false with `error` filled (may be NULL)
 * if a rule is broken. Call `nj_table_close` in either case. */
NJ_FOR_BINDING bool nj_table_read(nj_span raw, size_t rows, size_t image_count, nj_table *table, nj_error *error);
NJ_FOR_BINDING void nj_table_close(nj_table *table);

static inline uint32_t nj_table_at(const nj_table *table, nj_column column, size_t row)
{
    return nj_u32(table->columns + sizeof(uint32_t) * ((size_t)column * table->rows + row));
}

#endif
