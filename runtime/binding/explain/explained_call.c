#include "explain/explained_call.h"

#include "plan/select_row.h"
#include "python/exceptions.h"
#include "python/utf8.h"

/* Returns the index of a param by its name; -1 if there is none. */
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

/* Reads the arguments. Returns 1, 0 if a name is no runtime param or an argument is missing, or -1 with an exception raised. */
static int read_arguments(py_explained_call *self, PyObject *arguments)
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

/* Reads the constexprs. Returns 1, 0 if a name is no constexpr param, or -1 with an exception raised. */
static int read_constexprs(py_explained_call *self, PyObject *constexprs, nj_constant *constants, const nj_constant **given)
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

/* Reads the options, which `given` holds after the params. Returns 1, or -1 with an exception raised. */
static int read_options(py_explained_call *self, PyObject *options, nj_constant *constants, const nj_constant **given, nj_span *names)
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

/* Reads a call. Returns 1, 0 if its names do not match the kernel's params, or -1 with an exception raised. */
static int read_call(py_explained_call *self, const py_call_records *call)
{
    const nj_table *table = py_table_of(self->table);
    size_t option_count = (size_t)PyDict_GET_SIZE(call->options), places = table->param_count + option_count;
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
    int read = read_arguments(self, call->arguments);
    read = read == 1 ? read_constexprs(self, call->constexprs, constants, given) : read;
    read = read == 1 ? read_options(self, call->options, constants, given, names) : read;
    self->coerced = (nj_coerced_call){
        .arguments = {self->read->values, self->read->leaves, self->read->descriptors},
        .given = given,
        .option_count = option_count,
        .options = names,
        .arch = call->arch,
        .interrupted = py_is_interrupted,
    };
    return read;
}

/* Computes the tuning key. Returns 0, or -1 with an exception raised. */
static int read_key(py_explained_call *self, PyObject *where)
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

/* Matches the call against the table, unless `read` is 0. Returns 0, or -1 with an exception raised. */
static int set_against_table(py_explained_call *self, int read, PyObject *where)
{
    if (read == 0) {
        self->outcome = NJ_UNKNOWN_NAME;
        return 0;
    }
    if (read_key(self, where) < 0) {
        return -1;
    }
    self->outcome = nj_match_open(&self->match, &self->signatures, &self->coerced, &self->fault);
    self->open = true;
    if (self->outcome == NJ_NO_MEMORY) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

int py_explained_open(py_explained_call *self, const py_call_records *call, PyObject *ordering, PyObject *where)
{
    nj_error error;
    const nj_table *table = py_table_of(call->table);
    if (table == NULL || py_ordering_read(ordering, &self->ordering) < 0) {
        self->ordering.object = NULL;
        return -1;
    }
    Py_XINCREF(self->ordering.object);
    self->table = Py_NewRef(call->table);
    self->held = PyTuple_Pack(3, call->arguments, call->constexprs, call->options);
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
    int read = read_call(self, call);
    return read < 0 ? -1 : set_against_table(self, read, where);
}

void py_explained_close(py_explained_call *self)
{
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
}
