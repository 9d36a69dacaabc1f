/* `_core.Selection`: a call matched against a table. runtime/explain and tools ask it why a variant does not serve the call. */
#include "explain/broken_rules.h"
#include "module.h"
#include "python/at_import.h"
#include "python/tuples.h"
#include "python/utf8.h"
#include "values/make_value.h"

#include "select/serving_rules.h"

typedef struct {
    PyObject_HEAD
    py_explained_call it;
} selection;

static const char *const outcomes[] = {
    [NJ_DERIVED_GIVEN] = "derived", [NJ_UNKNOWN_NAME] = "name",     [NJ_WRONG_KIND] = "kind",
    [NJ_VALUE_MISSING] = "value",   [NJ_UNTYPED] = "untyped",
};

static int selection_init(selection *self, PyObject *args)
{
    PyObject *ordering, *where;
    py_call_records call;
    if (!PyArg_ParseTuple(args, "OO!O!O!iOO:Selection", &call.table, &PyDict_Type, &call.arguments, &PyDict_Type, &call.constexprs,
                          &PyDict_Type, &call.options, &call.arch, &ordering, &where)) {
        return -1;
    }
    return py_explained_open(&self->it, &call, ordering, where);
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
    py_explained_close(&self->it);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Returns None, or (code of the call's fault, name of the param, axis or option at fault). */
static PyObject *selection_fault(selection *self, void *Py_UNUSED(closure))
{
    const nj_table *table = self->it.signatures.table;
    if (self->it.outcome == NJ_SERVED) {
        Py_RETURN_NONE;
    }
    if (!self->it.open) {
        return Py_BuildValue("(ss)", "name", "");
    }
    uint32_t place = self->it.fault.place;
    nj_span name = self->it.outcome == NJ_VALUE_MISSING ? table->axes[place].name
                   : place < table->param_count      ? table->params[place].name
                                                     : self->it.coerced.options[place - table->param_count];
    PyObject *text = py_text(name);
    return text == NULL ? NULL : Py_BuildValue("(sN)", outcomes[self->it.outcome], text);
}

/* Returns a tuple of bool: for each signature, whether it accepts the arguments. */
static PyObject *selection_fitting(selection *self, void *Py_UNUSED(closure))
{
    PyObject *made = PyTuple_New((Py_ssize_t)self->it.signatures.table->signature_count);
    for (uint32_t i = 0; made != NULL && i < self->it.signatures.table->signature_count; i++) {
        PyTuple_SET_ITEM(made, (Py_ssize_t)i, PyBool_FromLong(self->it.open && self->it.match.fits[i]));
    }
    return made;
}

static PyObject *make_number(void *Py_UNUSED(context), const void *numbers, size_t number)
{
    return PyLong_FromLongLong(((const int64_t *)numbers)[number]);
}

/* Returns a tuple: for each axis, the number of the call's value, -1 if it was not built, -2 for an axis of types only. */
static PyObject *selection_wanted(selection *self, void *Py_UNUSED(closure))
{
    return py_tuple(self->it.open ? self->it.signatures.table->axis_count : 0, make_number, NULL, self->it.match.wanted);
}

/* Returns the values of the tuning key before rounding. */
static PyObject *selection_numbers(selection *self, void *Py_UNUSED(closure))
{
    return py_tuple(self->it.preference.key_count, make_number, NULL, self->it.numbers);
}

/* Requires a call that the kernel can take. Returns 0, or -1 with ValueError raised. */
static int check_open(const selection *self)
{
    if (self->it.outcome != NJ_SERVED) {
        PyErr_SetString(PyExc_ValueError, "expected a call that the kernel can take");
        return -1;
    }
    return 0;
}

/* Reads an index below `limit`. Returns false with IndexError raised. */
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

static bool add_row(void *context, size_t row)
{
    return py_append(context, PyLong_FromSize_t(row));
}

static bool add_first_row(void *context, size_t row)
{
    add_row(context, row);
    return false;
}

/* Returns the rows that serve the call, best first; `rows(True)` returns the first only. */
static PyObject *selection_rows(selection *self, PyObject *first)
{
    PyObject *rows = check_open(self) < 0 ? NULL : PyList_New(0);
    if (rows == NULL) {
        return NULL;
    }
    nj_verdict outcome = nj_rows_best_first(&self->it.match, &self->it.preference, first == Py_True ? add_first_row : add_row, rows);
    if (outcome == NJ_NO_MEMORY) {
        PyErr_NoMemory();
    }
    return py_ended_list(rows, !PyErr_Occurred());
}

static PyObject *selection_stages(selection *self, PyObject *Py_UNUSED(none))
{
    return check_open(self) < 0 ? NULL : py_first_broken_rules(&self->it);
}

/* Returns `of(call, number)` after checking that `number` is below `count`. */
static PyObject *ask(selection *self, PyObject *number, size_t count, PyObject *(*of)(py_explained_call *, size_t))
{
    size_t index;
    return check_open(self) == 0 && read_index(number, count, &index) ? of(&self->it, index) : NULL;
}

static PyObject *selection_misfits(selection *self, PyObject *signature)
{
    return ask(self, signature, self->it.signatures.table->signature_count, py_misfits);
}

static PyObject *selection_apart(selection *self, PyObject *case_number)
{
    return ask(self, case_number, self->it.signatures.table->case_count, py_axes_apart);
}

static PyObject *selection_unset(selection *self, PyObject *config)
{
    return ask(self, config, self->it.signatures.table->config_count, py_settings_apart);
}

static PyObject *selection_underived(selection *self, PyObject *row)
{
    return ask(self, row, self->it.signatures.table->rows, py_derived_apart);
}

static PyObject *selection_failing(selection *self, PyObject *hint_set)
{
    return ask(self, hint_set, self->it.signatures.table->hint_set_count, py_failing_hints);
}

/* Reads the numbers of a case and a config. Returns false with an exception raised. */
static bool read_site(const selection *self, PyObject *number, PyObject *config, size_t *case_number, size_t *config_number)
{
    return check_open(self) == 0 && read_index(number, self->it.signatures.table->case_count, case_number) &&
           read_index(config, self->it.signatures.table->config_count, config_number);
}

/* Returns the sort key of a row that serves the call: narrow ints first, then the config's rank, more hints, position in the table. */
static PyObject *selection_key(selection *self, PyObject *row)
{
    const nj_table *table = self->it.signatures.table;
    size_t at;
    uint32_t rank;
    if (check_open(self) < 0 || !read_index(row, table->rows, &at)) {
        return NULL;
    }
    uint32_t of = nj_table_at(table, NJ_COLUMN_CASE, at);
    if (!nj_config_rank(&self->it.match, &self->it.preference, of, nj_table_at(table, NJ_COLUMN_CONFIG, at), &rank)) {
        return PyErr_NoMemory();
    }
    long hints = (long)table->hint_sets[nj_table_at(table, NJ_COLUMN_HINTS, at)].count;
    return Py_BuildValue("(IIln)", self->it.signatures.bits[table->cases[of].signature], rank, -hints, (Py_ssize_t)at);
}

/* Resolves a name in an expression for a case and a config. Returns (value,), True for an argument, or None for an unknown name. */
static PyObject *selection_find(selection *self, PyObject *args)
{
    PyObject *number, *config, *name;
    size_t case_number, config_number;
    nj_span text;
    if (!PyArg_ParseTuple(args, "OOU:find", &number, &config, &name) || !read_site(self, number, config, &case_number, &config_number) ||
        !py_borrow_text(name, &text)) {
        return NULL;
    }
    nj_found_name found = nj_match_name(&self->it.match, (uint32_t)case_number, (uint32_t)config_number, text);
    switch (found.kind) {
    case NJ_NAME_ARCH: return Py_BuildValue("(i)", self->it.coerced.arch);
    case NJ_NAME_ARGUMENT: Py_RETURN_TRUE;
    case NJ_NAME_CONSTANT: {
        PyObject *value = py_make_one_value(found.constant);
        return value == NULL ? NULL : Py_BuildValue("(N)", value);
    }
    default: Py_RETURN_NONE;
    }
}

static PyMethodDef selection_methods[] = {
    {"rows", (PyCFunction)selection_rows, METH_O, PyDoc_STR("The rows that serve the call, best first; with True only the best.")},
    {"stages", (PyCFunction)selection_stages, METH_NOARGS, PyDoc_STR("For each row, the number of the first rule that it breaks.")},
    {"misfits", (PyCFunction)selection_misfits, METH_O, PyDoc_STR("The runtime params whose type in a signature does not accept the argument, by index.")},
    {"apart", (PyCFunction)selection_apart, METH_O, PyDoc_STR("The axes on which a case differs from the call, by index.")},
    {"unset", (PyCFunction)selection_unset, METH_O, PyDoc_STR("The caller's settings that a config does not have, by name.")},
    {"underived", (PyCFunction)selection_underived, METH_O, PyDoc_STR("The derived constexprs on which a row differs from the call, by index.")},
    {"failing", (PyCFunction)selection_failing, METH_O, PyDoc_STR("The hints of a set that the call does not meet, by index.")},
    {"key", (PyCFunction)selection_key, METH_O, PyDoc_STR("The sort key of a row that serves the call.")},
    {"find", (PyCFunction)selection_find, METH_VARARGS, PyDoc_STR("Resolve a name for a case and a config: (value,), True for an argument, or None.")},
    {NULL},
};

static PyGetSetDef selection_attributes[] = {
    {"fault", (getter)selection_fault, NULL, PyDoc_STR("Why the kernel can never take the call: (code, name); None if it can."), NULL},
    {"fitting", (getter)selection_fitting, NULL, PyDoc_STR("For each signature, whether it accepts the arguments."), NULL},
    {"wanted", (getter)selection_wanted, NULL, PyDoc_STR("For each axis, the number of the call's value; -1 if not built, -2 for types."), NULL},
    {"numbers", (getter)selection_numbers, NULL, PyDoc_STR("The values of the tuning key, not rounded."), NULL},
    {NULL},
};

static PyType_Slot selection_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("A call matched against a table.")},
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
