#include "variant_table/table_records.h"

#include "module.h"
#include "python/at_import.h"
#include "python/exceptions.h"
#include "python/records.h"
#include "python/tuples.h"
#include "python/utf8.h"
#include "values/make_value.h"
#include "variant_table/columns.h"

#include "table/table.h"

/* Set once by `py_add_table_records` under the import lock, and never changed. */
static struct {
    py_record param, axis, derived, one_case, config;
    py_record tuning, tuning_table, block, device;
    py_record dtype, function;
    PyObject *missing;
} classes;

/* What a part is made with. */
typedef struct {
    const nj_table *table;
    py_texts texts;
} py_maker;

static PyObject *text_of(py_maker *it, nj_span text)
{
    return py_texts_make(&it->texts, text);
}

static PyObject *value_of(py_maker *it, const nj_constant *value)
{
    return py_make_value(&it->texts, value);
}

static PyObject *number_of(uint64_t number)
{
    return PyLong_FromUnsignedLongLong(number);
}

static PyObject *tuple_of(py_maker *it, const void *items, size_t count, py_item item)
{
    return py_tuple(count, item, it, items);
}

static PyObject *make_text(void *it, const void *items, size_t number)
{
    return text_of(it, ((const nj_span *)items)[number]);
}

static PyObject *make_constant(void *it, const void *items, size_t number)
{
    return value_of(it, (const nj_constant *)items + number);
}

static PyObject *make_param(void *it, const void *items, size_t number)
{
    const nj_param *param = (const nj_param *)items + number;
    PyObject *given = param->has_default ? value_of(it, &param->fallback) : Py_NewRef(classes.missing);
    return py_record_make(&classes.param, (PyObject *[]){text_of(it, param->name), PyBool_FromLong(param->is_constexpr), given});
}

static PyObject *make_axis(void *it, const void *items, size_t number)
{
    const nj_axis *axis = (const nj_axis *)items + number;
    return py_record_make(&classes.axis, (PyObject *[]){text_of(it, axis->name), PyBool_FromLong(axis->is_type),
                                                        tuple_of(it, axis->values, axis->count, make_constant)});
}

static PyObject *make_derived(void *it, const void *items, size_t number)
{
    const nj_derived *derived = (const nj_derived *)items + number;
    return py_record_make(&classes.derived, (PyObject *[]){text_of(it, derived->name), text_of(it, derived->expression)});
}

static PyObject *make_signature(void *it, const void *items, size_t number)
{
    return tuple_of(it, ((const nj_span *const *)items)[number], ((py_maker *)it)->table->runtime_count, make_text);
}

static PyObject *make_case(void *it, const void *items, size_t number)
{
    const nj_case *point = (const nj_case *)items + number;
    return py_record_make(&classes.one_case, (PyObject *[]){number_of(point->signature),
                                                           py_tuple_of_numbers(point->places, ((py_maker *)it)->table->axis_count)});
}

/* Pairs two objects, which it steals; NULL if one is NULL, with an exception raised. */
static PyObject *pair_of(PyObject *first, PyObject *second)
{
    PyObject *pair = first == NULL || second == NULL ? NULL : PyTuple_Pack(2, first, second);
    Py_XDECREF(first);
    Py_XDECREF(second);
    return pair;
}

static PyObject *make_setting(void *it, const void *items, size_t number)
{
    const nj_setting *setting = (const nj_setting *)items + number;
    return pair_of(text_of(it, setting->name), value_of(it, &setting->value));
}

static PyObject *make_config(void *it, const void *items, size_t number)
{
    const nj_config *config = (const nj_config *)items + number;
    return py_record_make(&classes.config, (PyObject *[]){tuple_of(it, config->constexprs, config->constexpr_count, make_setting),
                                                          tuple_of(it, config->options, config->option_count, make_setting),
                                                          text_of(it, config->requires)});
}

static PyObject *make_hint(void *it, const void *items, size_t number)
{
    const nj_hint *hint = (const nj_hint *)items + number;
    return pair_of(text_of(it, hint->leaf), number_of(hint->value));
}

static PyObject *make_hint_set(void *it, const void *items, size_t number)
{
    const nj_hint_set *set = (const nj_hint_set *)items + number;
    return tuple_of(it, set->hints, set->count, make_hint);
}

static PyObject *make_derived_values(void *it, const void *items, size_t number)
{
    return tuple_of(it, ((const nj_constant *const *)items)[number], ((py_maker *)it)->table->derived_count, make_constant);
}

static PyObject *make_block(void *Py_UNUSED(it), const void *items, size_t number)
{
    const nj_tuning_block *block = (const nj_tuning_block *)items + number;
    return py_record_make(&classes.block, (PyObject *[]){py_tuple_of_numbers(block->cases, block->case_count),
                                                         py_bytes(block->problems_text), py_bytes(block->estimates_text)});
}

static PyObject *make_tuning_table(void *it, const void *items, size_t number)
{
    const nj_tuning_table *table = (const nj_tuning_table *)items + number;
    PyObject *device = py_record_make(&classes.device, (PyObject *[]){text_of(it, table->device), text_of(it, table->arch),
                                                                      number_of(table->multiprocessors), number_of(table->memory_bytes)});
    return py_record_make(&classes.tuning_table, (PyObject *[]){device, tuple_of(it, table->blocks, table->block_count, make_block)});
}

static PyObject *make_params(py_maker *it)
{
    return tuple_of(it, it->table->params, it->table->param_count, make_param);
}

static PyObject *make_grid(py_maker *it)
{
    return tuple_of(it, it->table->grid, it->table->grid_count, make_text);
}

static PyObject *make_tuning(py_maker *it)
{
    const nj_tuning *tuning = &it->table->tuning;
    if (tuning->key_count == 0) {
        Py_RETURN_NONE;
    }
    return py_record_make(&classes.tuning, (PyObject *[]){tuple_of(it, tuning->key, tuning->key_count, make_text),
                                                          PyUnicode_FromString(nj_bucket_names[tuning->bucket]),
                                                          tuple_of(it, tuning->tables, tuning->table_count, make_tuning_table)});
}

static PyObject *make_axes(py_maker *it)
{
    return tuple_of(it, it->table->axes, it->table->axis_count, make_axis);
}

static PyObject *make_all_derived(py_maker *it)
{
    return tuple_of(it, it->table->derived, it->table->derived_count, make_derived);
}

static PyObject *make_signatures(py_maker *it)
{
    return tuple_of(it, it->table->signatures, it->table->signature_count, make_signature);
}

static PyObject *make_cases(py_maker *it)
{
    return tuple_of(it, it->table->cases, it->table->case_count, make_case);
}

static PyObject *make_configs(py_maker *it)
{
    return tuple_of(it, it->table->configs, it->table->config_count, make_config);
}

static PyObject *make_hint_sets(py_maker *it)
{
    return tuple_of(it, it->table->hint_sets, it->table->hint_set_count, make_hint_set);
}

static PyObject *make_all_derived_values(py_maker *it)
{
    return tuple_of(it, it->table->derived_values, it->table->derived_value_count, make_derived_values);
}

static PyObject *make_programs(py_maker *it)
{
    return tuple_of(it, it->table->programs, it->table->program_count, make_text);
}

static PyObject *make_columns(py_maker *it)
{
    return py_columns_make(it->table->columns, it->table->rows);
}

static PyObject *make_batch(py_maker *it)
{
    return tuple_of(it, it->table->batch, it->table->batch_count, make_text);
}

static const struct {
    const char *name;
    PyObject *(*make)(py_maker *it);
} parts[] = {
    {"params", make_params},
    {"grid", make_grid},
    {"tuning", make_tuning},
    {"axes", make_axes},
    {"derived", make_all_derived},
    {"signatures", make_signatures},
    {"cases", make_cases},
    {"configs", make_configs},
    {"hint_sets", make_hint_sets},
    {"derived_values", make_all_derived_values},
    {"programs", make_programs},
    {"columns", make_columns},
    {"batch", make_batch},
};

PyObject *py_table_part(const nj_table *table, PyObject *name)
{
    py_maker it = {.table = table};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, parts[i].name) == 0) {
            PyObject *made = parts[i].make(&it);
            py_texts_clear(&it.texts);
            return made;
        }
    }
    PyErr_SetObject(PyExc_KeyError, name);
    return NULL;
}

int py_add_table_records(PyObject *Py_UNUSED(module))
{
    static const struct {
        const char *home, *name;
        Py_ssize_t fields;
        py_record *record;
    } wanted[] = {
        {"nojit.runtime.table.table", "Param", 3, &classes.param},
        {"nojit.runtime.table.table", "Axis", 3, &classes.axis},
        {"nojit.runtime.table.table", "Derived", 2, &classes.derived},
        {"nojit.runtime.table.table", "Case", 2, &classes.one_case},
        {"nojit.runtime.table.table", "Config", 3, &classes.config},
        {"nojit.runtime.table.tuning", "Tuning", 3, &classes.tuning},
        {"nojit.runtime.table.tuning", "TuningTable", 2, &classes.tuning_table},
        {"nojit.runtime.table.tuning", "TuningBlock", 3, &classes.block},
        {"nojit.runtime.table.tuning", "TunedDevice", 4, &classes.device},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (py_record_find(wanted[i].home, wanted[i].name, wanted[i].fields, wanted[i].record) < 0) {
            return -1;
        }
    }
    return py_import("nojit.runtime.table.table", "MISSING", &classes.missing);
}
