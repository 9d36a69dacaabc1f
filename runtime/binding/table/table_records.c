#include "table/table_records.h"

#include "module.h"
#include "python/at_import.h"
#include "python/exceptions.h"
#include "python/records.h"
#include "python/tuples.h"
#include "python/utf8.h"
#include "table/columns.h"
#include "table/launch_records.h"
#include "values/make_value.h"

#include "table/table.h"

#include <stdatomic.h>

/* Set once by `take_records`, under the import lock of the classes' module and before `taken`. Never changed. */
static struct {
    py_record param, axis, derived, one_case, config;
    py_record tuning, tuning_table, block, device;
    PyObject *missing;
} classes;

static atomic_bool taken;

int py_need_classes(void)
{
    return atomic_load_explicit(&taken, memory_order_acquire) ? 0 : py_import_only("nojit.runtime.table.parts");
}

/* Context of the functions that make parts. */
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

/* Returns a new tuple of two objects; NULL with an exception raised. Steals both, which may be NULL with an exception raised. */
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
    if (py_need_classes() < 0) {
        return NULL;
    }
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

/* Makes a param of `Dispatcher`: (name, is_constexpr), or (name, is_constexpr, default) for a runtime param with a default. */
static PyObject *make_call_param(void *it, const void *items, size_t number)
{
    const nj_param *param = (const nj_param *)items + number;
    PyObject *name = text_of(it, param->name);
    if (param->is_constexpr || !param->has_default) {
        return pair_of(name, PyBool_FromLong(param->is_constexpr));
    }
    PyObject *given = value_of(it, &param->fallback), *made = NULL;
    if (name != NULL && given != NULL) {
        made = PyTuple_Pack(3, name, Py_False, given);
    }
    Py_XDECREF(name);
    Py_XDECREF(given);
    return made;
}

/* Adds the names of a config's options that are not in `names`. */
static bool add_options(py_maker *it, const nj_config *config, PyObject *names)
{
    for (uint32_t i = 0; i < config->option_count; i++) {
        PyObject *name = text_of(it, config->options[i].name);
        int known = name == NULL ? -1 : PySequence_Contains(names, name);
        bool added = known > 0 || (known == 0 && PyList_Append(names, name) == 0);
        Py_XDECREF(name);
        if (!added) {
            return false;
        }
    }
    return true;
}

static PyObject *make_option_names(py_maker *it)
{
    PyObject *names = PyList_New(0);
    bool whole = names != NULL;
    for (uint32_t i = 0; whole && i < it->table->config_count; i++) {
        whole = add_options(it, it->table->configs + i, names);
    }
    return py_ended_list(names, whole);
}

PyObject *py_table_signature(const nj_table *table)
{
    py_maker it = {.table = table};
    PyObject *params = tuple_of(&it, table->params, table->param_count, make_call_param);
    PyObject *signature = pair_of(params, params == NULL ? NULL : make_option_names(&it));
    py_texts_clear(&it.texts);
    return signature;
}

static int take_table_classes(PyObject *given)
{
    static const struct {
        Py_ssize_t fields;
        py_record *record;
    } wanted[] = {
        {3, &classes.param},  {3, &classes.axis},         {2, &classes.derived}, {2, &classes.one_case}, {3, &classes.config},
        {3, &classes.tuning}, {2, &classes.tuning_table}, {3, &classes.block},   {4, &classes.device},
    };
    enum { WANTED = sizeof wanted / sizeof *wanted };
    if (PyTuple_GET_SIZE(given) != WANTED) {
        PyErr_Format(PyExc_TypeError, "expected %d classes, got %zd", WANTED, PyTuple_GET_SIZE(given));
        return -1;
    }
    for (size_t i = 0; i < WANTED; i++) {
        if (py_record_of(PyTuple_GET_ITEM(given, i), wanted[i].fields, wanted[i].record) < 0) {
            return -1;
        }
    }
    return 0;
}

/* `take_records((Param, ...), MISSING, Launch, TensorMap, Slot)`: sets the classes of the records for parts and launches. */
static PyObject *take_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *parts, *missing, *launch, *map, *slot;
    if (!PyArg_ParseTuple(args, "O!OOOO:take_records", &PyTuple_Type, &parts, &missing, &launch, &map, &slot)) {
        return NULL;
    }
    if (atomic_load(&taken)) {
        return PyErr_Format(PyExc_RuntimeError, "expected the classes of records once");
    }
    if (take_table_classes(parts) < 0 || py_take_launch_classes(launch, map, slot) < 0) {
        return NULL;
    }
    Py_XSETREF(classes.missing, Py_NewRef(missing));
    atomic_store_explicit(&taken, true, memory_order_release);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"take_records", take_records, METH_VARARGS, PyDoc_STR("Set the classes of the records for parts and launches of tables.")},
    {NULL},
};

int py_add_table_records(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
