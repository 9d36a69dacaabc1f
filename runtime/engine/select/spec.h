/* The spec of a kernel on a device: the fields of its keys, which hold the facts of a call that select the variant. */
#ifndef NOJIT_SELECT_SPEC_H
#define NOJIT_SELECT_SPEC_H

#include "expr/machine.h"
#include "select/config_order.h"
#include "select/key.h"
#include "select/signatures.h"
#include "select/tuning_key.h"

/* bits of a constexpr, an option or a program's result in the packed words */
#define NJ_MARK_BITS 3
/* two bits for each leaf of a tuple */
#define NJ_LEAF_WORDS_MAX (NJ_LEAVES_MAX / 32)
/* The most programs of a spec: one expression makes a program for each combination of axis and config values. */
#define NJ_PROGRAMS_MAX 4096

/* How a field is read; the first two are fast paths for nearly all arguments. */
typedef enum {
    NJ_FIELD_INT, /* the only type is an int */
    NJ_FIELD_POINTER, /* some type is a pointer */
    NJ_FIELD_ANY,
    NJ_FIELD_CONSTEXPR, /* a constexpr, an option or a program */
} nj_field_kind;

/* The ids of a string and of the dtype that it names. */
typedef struct {
    int64_t string, dtype;
} nj_alias;

/* The place of a param, constexpr, option or program in the key. */
typedef struct {
    uint16_t word;
    uint8_t shift;
    uint8_t kind;
    bool hint_16; /* whether some variant was compiled for values divisible by 16 */
    bool hint_1;  /* and for the value 1 */
    uint8_t type_count;
    const nj_type *types; /* NULL for all but runtime params */
    const nj_param_types *param;
    nj_value fallback; /* of a constexpr: the value that programs see if the call gives none */
    uint16_t alias_count;
    nj_alias *aliases; /* of a constexpr that was built with dtypes and no strings: the strings that name them; owned */
} nj_key_field;

typedef struct nj_spec {
    nj_signatures signatures;
    uint32_t argument_count, program_count, tuning_count; /* arguments: params and options */
    uint32_t packed_words;
    nj_key_field *fields; /* arguments, then programs */
    nj_program *programs; /* over arguments; their results select a variant */
    nj_tuned tuned;
    nj_tuning_key *tuning;
    nj_bucket bucket;
    int arch; /* value of ``arch`` in expressions, such as 90 */
} nj_spec;

/* Makes the spec of a table, and adds every value that a key can hold to `ids`. Table and `ids` must outlive the spec. `tuned` orders the
 * configs on the device, by the tuning key of `tuning`: the table's own tuning or another's, or NULL if `tuned` has no table. Returns
 * false with `error` filled if an expression is too long, a name is no param, or a limit is exceeded. Call `nj_spec_clear` in either
 * case. */
NJ_FOR_BINDING bool nj_spec_init(nj_spec *spec, const nj_table *table, nj_ids *ids, size_t option_count, int arch, const nj_tuning *tuning,
                              const nj_tuned *tuned, nj_error *error);
NJ_FOR_BINDING void nj_spec_clear(nj_spec *spec);

#endif
