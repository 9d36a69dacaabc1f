/* A call set against a table, as a Python object: for who says why a variant does not serve, and for tools. */
#include "module.h"
#include "plan/select_row.h"
#include "python/at_import.h"
#include "python/exceptions.h"
#include "python/tuples.h"
#include "python/utf8.h"
#include "values/argument_records.h"
#include "values/make_value.h"
#include "variant_table/py_table.h"

#include "select/hint.h"
#include "select/select.h"
#include "select/serving_rules.h"

typedef struct {
    PyObject_HEAD
    PyObject *table, *held; /* what texts are borrowed from */
    nj_ids *ids;
    nj_signatures signatures;
    py_read_arguments *read;
    py_pile *pile;
    nj_coerced_call passed;
    nj_match match;
    py_ordering ordering; /* its object is owned */
    nj_tuning_key programs[NJ_TUNING_KEYS_MAX];
    int64_t numbers[NJ_TUNING_KEYS_MAX], rounded[NJ_TUNING_KEYS_MAX];
    nj_preference preference;
    nj_verdict outcome;
    nj_fault fault;
    bool open;
} selection;

static const char *const outcomes[] = {
    [NJ_DERIVED_GIVEN] = "derived", [NJ_UNKNOWN_NAME] = "name",     [NJ_WRONG_KIND] = "kind",
    [NJ_VALUE_MISSING] = "value",   [NJ_UNTYPED] = "untyped",
};

/* The place of a param by its name; -1 if there is none. */
static Py_ssize_t place_of(const nj_table *table, PyObject *name)
{
    nj_span text;
    if (!py_borrow_text(name, &text)) {
        PyErr_Clear();
        return -1;
    }
    for (uint32_t i = 0; i < table->param_count; i++) {
        if (nj_span_equal(table->params[i].name, text)) {
            return (Py_ssize_t)i;
        }
    }
    return -1;
}

/* Reads the arguments: 1; 0 if a name is not that of a runtime param, or an argument is missing; -1 with an exception raised. */
static int read_arguments(selection *self, PyObject *arguments)
{
    const nj_table *table = py_table_of(self->table);
    PyObject *name, *argument;
    Py_ssize_t at = 0;
    if (PyDict_GET_SIZE(arguments) != (Py_ssize_t)table->runtime_count) {
        return 0;
    }
    while (PyDict_Next(arguments, &at, &name, &argument)) {
        Py_ssize_t place = place_of(table, name);
        if (place < 0 || table->params[place].is_constexpr) {
            return 0;
        }
        if (py_argument_read(argument, self->ids, self->read, &self->read->values[place]) < 0) {
            return -1;
        }
    }
    return 1;
}

/* Reads constexprs: 1; 0 if a name is not that of a constexpr; -1 with an exception raised. */
static int read_constexprs(selection *self, PyObject *constexprs, nj_constant *constants, const nj_constant **given)
{
    const nj_table *table = py_table_of(self->table);
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(constexprs, &at, &name, &value)) {
        Py_ssize_t place = place_of(table, name);
        if (place < 0 || !table->params[place].is_constexpr) {
            return 0;
        }
        if (py_constant_from(value, &self->pile, &constants[place]) < 0) {
            return -1;
        }
        given[place] = &constants[place];
    }
    return 1;
}

/* Reads options, which come behind the params: 1, or -1 with an exception raised. */
static int read_options(selection *self, PyObject *options, nj_constant *constants, const nj_constant **given, nj_span *names)
{
    const uint32_t first = py_table_of(self->table)->param_count;
    PyObject *name, *value;
    Py_ssize_t at = 0, number = 0;
    while (PyDict_Next(options, &at, &name, &value)) {
        if (!py_borrow_text(name, &names[number]) || py_constant_from(value, &self->pile, &constants[first + number]) < 0) {
            return -1;
        }
        given[first + number] = &constants[first + number];
        number++;
    }
    return 1;
}

/* Reads a call: 1, 0 if it names what the kernel has not, -1 with an exception raised. */
static int read_call(selection *self, PyObject *arguments, PyObject *constexprs, PyObject *options, int arch)
{
    const nj_table *table = py_table_of(self->table);
    size_t option_count = (size_t)PyDict_GET_SIZE(options), places = table->param_count + option_count;
    if (table->param_count > NJ_ARGUMENTS_MAX) {
        PyErr_Format(PyExc_ValueError, "expected at most %d params", NJ_ARGUMENTS_MAX);
        return -1;
    }
    nj_constant *constants = py_pile_take(&self->pile, places * sizeof *constants);
    const nj_constant **given = constants == NULL ? NULL : py_pile_take(&self->pile, places * sizeof *given);
    nj_span *names = given == NULL ? NULL : py_pile_take(&self->pile, option_count * sizeof *names);
    if (names == NULL) {
        return -1;
    }
    memset(given, 0, places * sizeof *given);
    int read = read_arguments(self, arguments);
    read = read == 1 ? read_constexprs(self, constexprs, constants, given) : read;
    read = read == 1 ? read_options(self, options, constants, given, names) : read;
    self->passed = (nj_coerced_call){
        .arguments = {self->read->values, self->read->leaves, self->read->descriptors},
        .given = given,
        .option_count = option_count,
        .options = names,
        .arch = arch,
        .interrupted = py_is_interrupted,
    };
    return read;
}

/* Computes the tuning key: 0, or -1 with an exception raised. */
static int read_key(selection *self, PyObject *where)
{
    nj_error error;
    if (self->ordering.tuning == NULL) {
        return 0;
    }
    const nj_tuning *tuning = self->ordering.tuning;
    if (!nj_tuning_programs(&self->signatures, tuning, self->programs, &error)) {
        py_raise(&error, where);
        return -1;
    }
    for (uint32_t i = 0; i < tuning->key_count; i++) {
        self->numbers[i] = nj_tuning_number(&self->programs[i], self->read->values);
    }
    nj_tuning_round(self->programs, tuning->key_count, tuning->bucket, self->read->values, self->rounded);
    self->preference = (nj_preference){self->ordering.tuned, self->rounded, tuning->key_count};
    return 0;
}

/* Sets the call against the table: 0, or -1 with an exception raised. */
static int open_choice(selection *self, int read, PyObject *where)
{
    if (read == 0) {
        self->outcome = NJ_UNKNOWN_NAME;
        return 0;
    }
    if (read_key(self, where) < 0) {
        return -1;
    }
    self->outcome = nj_match_open(&self->match, &self->signatures, &self->passed, &self->fault);
    self->open = true;
    if (self->outcome == NJ_NO_MEMORY) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static int selection_init(selection *self, PyObject *args)
{
    PyObject *handle, *arguments, *constexprs, *options, *ordering, *where;
    int arch;
    nj_error error;
    if (!PyArg_ParseTuple(args, "OO!O!O!iOO:Selection", &handle, &PyDict_Type, &arguments, &PyDict_Type, &constexprs, &PyDict_Type, &options,
                          &arch, &ordering, &where)) {
        return -1;
    }
    const nj_table *table = py_table_of(handle);
    if (table == NULL || py_ordering_read(ordering, &self->ordering) < 0) {
        self->ordering.object = NULL;
        return -1;
    }
    Py_XINCREF(self->ordering.object);
    self->table = Py_NewRef(handle);
    self->held = PyTuple_Pack(3, arguments, constexprs, options);
    self->read = PyMem_Calloc(1, sizeof *self->read);
    self->ids = nj_ids_new();
    if (self->held == NULL || self->read == NULL || self->ids == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (!nj_signatures_init(&self->signatures, table, self->ids, &error)) {
        py_raise(&error, where);
        return -1;
    }
    int read = read_call(self, arguments, constexprs, options, arch);
    return read < 0 ? -1 : open_choice(self, read, where);
}

static PyObject *selection_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    selection *self = (selection *)type->tp_alloc(type, 0);
    if (self != NULL && selection_init(self, args) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void selection_dealloc(selection *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (self->open) {
        nj_match_close(&self->match);
    }
    for (int i = 0; i < NJ_TUNING_KEYS_MAX; i++) {
        nj_tuning_key_clear(&self->programs[i]);
    }
    if (self->signatures.table != NULL) {
        nj_signatures_clear(&self->signatures);
    }
    nj_ids_free(self->ids);
    py_pile_free(self->pile);
    PyMem_Free(self->read);
    Py_XDECREF((PyObject *)self->ordering.object);
    Py_XDECREF(self->table);
    Py_XDECREF(self->held);
    type->tp_free(self);
    Py_DECREF(type);
}

/* None, or (what is wrong with the call, the param, axis or option that it is about). */
static PyObject *selection_fault(selection *self, void *Py_UNUSED(closure))
{
    const nj_table *table = self->signatures.table;
    if (self->outcome == NJ_SERVED) {
        Py_RETURN_NONE;
    }
    if (!self->open) {
        return Py_BuildValue("(ss)", "name", "");
    }
    uint32_t place = self->fault.place;
    nj_span name = self->outcome == NJ_VALUE_MISSING ? table->axes[place].name
                   : place < table->param_count      ? table->params[place].name
                                                     : self->passed.options[place - table->param_count];
    PyObject *text = py_text(name);
    return text == NULL ? NULL : Py_BuildValue("(sN)", outcomes[self->outcome], text);
}

/* Of each signature, whether it takes the arguments. */
static PyObject *selection_fitting(selection *self, void *Py_UNUSED(closure))
{
    PyObject *made = PyTuple_New((Py_ssize_t)self->signatures.table->signature_count);
    for (uint32_t i = 0; made != NULL && i < self->signatures.table->signature_count; i++) {
        PyTuple_SET_ITEM(made, (Py_ssize_t)i, PyBool_FromLong(self->open && self->match.fits[i]));
    }
    return made;
}

static PyObject *make_number(void *Py_UNUSED(context), const void *numbers, size_t number)
{
    return PyLong_FromLongLong(((const int64_t *)numbers)[number]);
}

/* For each axis, the number of the call's value: -1 if it was not built, -2 for an axis that only spells types. */
static PyObject *selection_wanted(selection *self, void *Py_UNUSED(closure))
{
    return py_tuple(self->open ? self->signatures.table->axis_count : 0, make_number, NULL, self->match.wanted);
}

/* The numbers of the tuning key, before they are rounded. */
static PyObject *selection_numbers(selection *self, void *Py_UNUSED(closure))
{
    return py_tuple(self->preference.key_count, make_number, NULL, self->numbers);
}

/* 0 if the call can be asked about, else -1 with an exception raised. */
static int check_open(const selection *self)
{
    if (self->outcome != NJ_SERVED) {
        PyErr_SetString(PyExc_ValueError, "expected a call that the kernel can take");
        return -1;
    }
    return 0;
}

/* Reads an index below `limit`; false with an exception raised. */
static bool read_index(PyObject *object, size_t limit, size_t *index)
{
    *index = PyLong_AsSize_t(object);
    if (PyErr_Occurred() || *index >= limit) {
        PyErr_Clear();
        PyErr_Format(PyExc_IndexError, "expected an index below %zu", limit);
        return false;
    }
    return true;
}

/* A tuple of a list's items if it is whole, else NULL; the list, which may be NULL, ends. */
static PyObject *ended(PyObject *list, bool whole)
{
    PyObject *made = whole ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return made;
}

static bool add_row(void *context, size_t row)
{
    return py_append(context, PyLong_FromSize_t(row));
}

static bool add_first_row(void *context, size_t row)
{
    add_row(context, row);
    return false;
}

/* The rows that serve the call, the best first; `rows(True)`: no more than the first. */
static PyObject *selection_rows(selection *self, PyObject *first)
{
    PyObject *rows = check_open(self) < 0 ? NULL : PyList_New(0);
    if (rows == NULL) {
        return NULL;
    }
    nj_verdict outcome = nj_rows_best_first(&self->match, &self->preference, first == Py_True ? add_first_row : add_row, rows);
    if (outcome == NJ_NO_MEMORY) {
        PyErr_NoMemory();
    }
    return ended(rows, !PyErr_Occurred());
}

/* Of each row, the number of the first rule that it breaks, in bytes. */
static PyObject *selection_stages(selection *self, PyObject *Py_UNUSED(none))
{
    const Py_ssize_t rows = (Py_ssize_t)self->signatures.table->rows, between_signals = 256;
    PyObject *made = check_open(self) < 0 ? NULL : PyBytes_FromStringAndSize(NULL, rows);
    for (Py_ssize_t row = 0; made != NULL && row < rows; row++) {
        PyBytes_AS_STRING(made)[row] = (char)nj_first_broken_rule(&self->match, (size_t)row);
        if (self->match.starved) {
            PyErr_NoMemory();
        }
        if (self->match.starved || (row % between_signals == 0 && PyErr_CheckSignals() < 0)) {
            Py_CLEAR(made);
        }
    }
    return made;
}

/* Says whether the call breaks part `i` of something in the table, whose number is `of`. */
typedef bool (*breaks)(selection *self, size_t of, uint32_t i);

/* The parts, of `count`, that the call breaks. */
static PyObject *broken(selection *self, size_t of, uint32_t count, breaks is_broken)
{
    PyObject *parts = PyList_New(0);
    bool whole = parts != NULL;
    for (uint32_t i = 0; whole && i < count; i++) {
        whole = !is_broken(self, of, i) || py_append(parts, PyLong_FromUnsignedLong(i));
    }
    return ended(parts, whole);
}

static bool is_misfit(selection *self, size_t signature, uint32_t i)
{
    size_t number = signature * self->signatures.table->runtime_count + i;
    return (self->match.takers[i] >> self->signatures.numbers[number] & 1) == 0;
}

/* The params whose type in a signature does not take the argument, by their place among the runtime params. */
static PyObject *selection_misfits(selection *self, PyObject *signature)
{
    const nj_table *table = self->signatures.table;
    size_t number;
    bool known = check_open(self) == 0 && read_index(signature, table->signature_count, &number);
    return known ? broken(self, number, table->runtime_count, is_misfit) : NULL;
}

static bool is_off_axis(selection *self, size_t case_number, uint32_t axis)
{
    return !nj_match_on_axis(&self->match, (uint32_t)case_number, axis);
}

/* The axes on which the point of a case is not the call's. */
static PyObject *selection_apart(selection *self, PyObject *number)
{
    const nj_table *table = self->signatures.table;
    size_t of;
    bool known = check_open(self) == 0 && read_index(number, table->case_count, &of);
    return known ? broken(self, of, table->axis_count, is_off_axis) : NULL;
}

/* The names of constexprs and options that the caller sets, and to another value than a config has. */
static PyObject *selection_unset(selection *self, PyObject *number)
{
    const nj_table *table = self->signatures.table;
    size_t config;
    if (check_open(self) < 0 || !read_index(number, table->config_count, &config)) {
        return NULL;
    }
    PyObject *names = PyList_New(0);
    bool whole = names != NULL;
    for (size_t place = 0; whole && place < table->param_count + self->passed.option_count; place++) {
        if (nj_match_asks(&self->match, place) && !nj_match_sets(&self->match, (uint32_t)config, place)) {
            whole = py_append(names, py_text(place < table->param_count ? table->params[place].name
                                                                       : self->passed.options[place - table->param_count]));
        }
    }
    return ended(names, whole);
}

/* Reads a case and a config. */
static bool read_site(const selection *self, PyObject *number, PyObject *config, size_t *case_number, size_t *config_number)
{
    return check_open(self) == 0 && read_index(number, self->signatures.table->case_count, case_number) &&
           read_index(config, self->signatures.table->config_count, config_number);
}

/* The derived constexprs whose values in a row are not what the call comes to. */
static PyObject *selection_underived(selection *self, PyObject *row)
{
    const nj_table *table = self->signatures.table;
    size_t at;
    if (check_open(self) < 0 || !read_index(row, table->rows, &at)) {
        return NULL;
    }
    const nj_value *results = nj_match_derive(&self->match, nj_table_at(table, NJ_COLUMN_CASE, at), nj_table_at(table, NJ_COLUMN_CONFIG, at));
    const nj_constant *built = table->derived_values[nj_table_at(table, NJ_COLUMN_DERIVED, at)];
    PyObject *numbers = PyList_New(0);
    bool whole = numbers != NULL;
    for (uint32_t i = 0; whole && i < table->derived_count; i++) {
        whole = nj_match_is_result(&self->match, &results[i], &built[i]) || py_append(numbers, PyLong_FromUnsignedLong(i));
    }
    return ended(numbers, whole);
}

static bool is_failing(selection *self, size_t set, uint32_t i)
{
    return !nj_hint_holds(&self->signatures, &self->passed.arguments, &self->signatures.table->hint_sets[set].hints[i]);
}

/* The hints of a set that do not hold, by their place. */
static PyObject *selection_failing(selection *self, PyObject *number)
{
    const nj_table *table = self->signatures.table;
    size_t set;
    bool known = check_open(self) == 0 && read_index(number, table->hint_set_count, &set);
    return known ? broken(self, set, table->hint_sets[set].count, is_failing) : NULL;
}

/* What rows that serve are ordered by: narrow ints, preferred config, many hints, place in the table. */
static PyObject *selection_key(selection *self, PyObject *row)
{
    const nj_table *table = self->signatures.table;
    size_t at;
    uint32_t rank;
    if (check_open(self) < 0 || !read_index(row, table->rows, &at)) {
        return NULL;
    }
    uint32_t of = nj_table_at(table, NJ_COLUMN_CASE, at);
    if (!nj_config_rank(&self->match, &self->preference, of, nj_table_at(table, NJ_COLUMN_CONFIG, at), &rank)) {
        return PyErr_NoMemory();
    }
    long hints = (long)table->hint_sets[nj_table_at(table, NJ_COLUMN_HINTS, at)].count;
    return Py_BuildValue("(IIln)", self->signatures.bits[table->cases[of].signature], rank, -hints, (Py_ssize_t)at);
}

/* What a name in an expression stands for with a case and a config: (value,), True for an argument, None for nothing. */
static PyObject *selection_find(selection *self, PyObject *args)
{
    PyObject *number, *config, *name;
    size_t case_number, config_number;
    nj_span text;
    if (!PyArg_ParseTuple(args, "OOU:find", &number, &config, &name) || !read_site(self, number, config, &case_number, &config_number) ||
        !py_borrow_text(name, &text)) {
        return NULL;
    }
    nj_found_name found = nj_match_name(&self->match, (uint32_t)case_number, (uint32_t)config_number, text);
    switch (found.kind) {
    case NJ_NAME_ARCH: return Py_BuildValue("(i)", self->passed.arch);
    case NJ_NAME_ARGUMENT: Py_RETURN_TRUE;
    case NJ_NAME_CONSTANT: {
        PyObject *value = py_make_one_value(found.constant);
        return value == NULL ? NULL : Py_BuildValue("(N)", value);
    }
    default: Py_RETURN_NONE;
    }
}

static PyMethodDef selection_methods[] = {
    {"rows", (PyCFunction)selection_rows, METH_O, PyDoc_STR("The rows that serve the call, the best first; with True the best alone.")},
    {"stages", (PyCFunction)selection_stages, METH_NOARGS, PyDoc_STR("Of each row, the first rule that it breaks, by number.")},
    {"misfits", (PyCFunction)selection_misfits, METH_O, PyDoc_STR("The runtime params whose type in a signature does not fit, by place.")},
    {"apart", (PyCFunction)selection_apart, METH_O, PyDoc_STR("The axes on which a case is not the call's, by place.")},
    {"unset", (PyCFunction)selection_unset, METH_O, PyDoc_STR("The settings of the caller that a config has not, by name.")},
    {"underived", (PyCFunction)selection_underived, METH_O, PyDoc_STR("The derived constexprs of a row that are not the call's, by place.")},
    {"failing", (PyCFunction)selection_failing, METH_O, PyDoc_STR("The hints of a set that do not hold, by place.")},
    {"key", (PyCFunction)selection_key, METH_O, PyDoc_STR("What rows that serve are ordered by.")},
    {"find", (PyCFunction)selection_find, METH_VARARGS, PyDoc_STR("What a name stands for with a case and a config: (value,), True for an argument, None.")},
    {NULL},
};

static PyGetSetDef selection_attributes[] = {
    {"fault", (getter)selection_fault, NULL, PyDoc_STR("Why the kernel can never take the call: (code, name); None if it can."), NULL},
    {"fitting", (getter)selection_fitting, NULL, PyDoc_STR("Of each signature, whether it takes the arguments."), NULL},
    {"wanted", (getter)selection_wanted, NULL, PyDoc_STR("Of each axis, the number of the call's value; -1 if not built, -2 for types."), NULL},
    {"numbers", (getter)selection_numbers, NULL, PyDoc_STR("The numbers of the tuning key."), NULL},
    {NULL},
};

static PyType_Slot selection_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A call set against a table.")},
    {Py_tp_new, selection_new},
    {Py_tp_dealloc, selection_dealloc},
    {Py_tp_methods, selection_methods},
    {Py_tp_getset, selection_attributes},
    {0, NULL},
};

static PyType_Spec selection_spec = {
    .name = "nojit.runtime._core.Selection",
    .basicsize = sizeof(selection),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = selection_slots,
};

int py_add_selection(PyObject *module)
{
    static PyTypeObject *type;
    static const py_number rules[] = {
        {"RULE_TYPES", NJ_RULE_TYPES},       {"RULE_MATRIX", NJ_RULE_MATRIX},   {"RULE_SETTINGS", NJ_RULE_SETTINGS},
        {"RULE_REQUIRES", NJ_RULE_REQUIRES}, {"RULE_DERIVED", NJ_RULE_DERIVED}, {"RULE_HINTS", NJ_RULE_HINTS},
        {"RULE_NONE", NJ_RULE_NONE},         {NULL},
    };
    return py_add_numbers(module, rules) < 0 ? -1 : py_add_type(module, &selection_spec, &type);
}
