/* What of a call decides which variant of a kernel runs on one device: the fields of its key. */
#ifndef NOJIT_SELECT_SPEC_H
#define NOJIT_SELECT_SPEC_H

#include "expr/machine.h"
#include "select/config_order.h"
#include "select/key.h"
#include "select/signatures.h"
#include "select/tuning_key.h"

/* bits that a constexpr, an option or a program's result takes in the packed words */
#define NJ_MARK_BITS 3
/* two bits for each leaf of a tuple */
#define NJ_LEAF_WORDS_MAX (NJ_LEAVES_MAX / 32)
/* Expressions over arguments: with the values of axes and configs in their place there could be any number. */
#define NJ_PROGRAMS_MAX 4096

/* How a field is read; the first two are short cuts for what nearly all arguments are. */
typedef enum {
    NJ_FIELD_INT, /* one int type and no other */
    NJ_FIELD_POINTER, /* pointers, and perhaps others */
    NJ_FIELD_ANY,
    NJ_FIELD_CONSTEXPR, /* a constexpr, an option or a program */
} nj_field_kind;

/* The bits of a string, and of the dtype that it stands for. */
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
    nj_value fallback; /* of a constexpr: what programs see where the call gives none */
    uint16_t alias_count;
    nj_alias *aliases; /* of a constexpr of which only dtypes are known: what strings stand for; owned */
} nj_key_field;

typedef struct nj_spec {
    nj_signatures signatures;
    uint32_t argument_count, program_count, tuning_count; /* params and options together */
    uint32_t packed_words;
    nj_key_field *fields; /* arguments, then programs */
    nj_program *programs; /* over arguments, that choose a variant */
    nj_tuned tuned;
    nj_tuning_key *tuning;
    nj_bucket bucket;
    int arch; /* what ``arch`` stands for in expressions: 90 */
} nj_spec;

/* Makes the spec of a table, which must outlive it, as must `ids`, which gets every value that a key can hold. `tuned` orders the
 * configs on the device, by the key of `tuning`, the table's own or another's, which may be NULL if nothing does. False with `error`
 * filled: an expression is too long, or asks for a name that is no param, or a limit is passed. `nj_spec_clear` is due in either case. */
NJ_FOR_BINDING bool nj_spec_init(nj_spec *spec, const nj_table *table, nj_ids *ids, size_t option_count, int arch, const nj_tuning *tuning,
                              const nj_tuned *tuned, nj_error *error);
NJ_FOR_BINDING void nj_spec_clear(nj_spec *spec);

#endif
