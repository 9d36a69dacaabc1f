#include "explain/broken_rules.h"

#include "python/tuples.h"
#include "python/utf8.h"

#include "select/hint.h"
#include "select/serving_rules.h"

PyObject *py_first_broken_rules(py_explained_call *self)
{
    const Py_ssize_t rows = (Py_ssize_t)self->signatures.table->rows, between_signals = 256;
    PyObject *made = PyBytes_FromStringAndSize(NULL, rows);
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

/* Returns whether part `i` of object `of` of the table does not fit the call, such as param `i` of signature `of`. */
typedef bool (*breaks)(py_explained_call *self, size_t of, uint32_t i);

/* Returns a tuple of the numbers below `count` of the parts that do not fit the call. */
static PyObject *broken(py_explained_call *self, size_t of, uint32_t count, breaks is_broken)
{
    PyObject *parts = PyList_New(0);
    bool whole = parts != NULL;
    for (uint32_t i = 0; whole && i < count; i++) {
        whole = !is_broken(self, of, i) || py_append(parts, PyLong_FromUnsignedLong(i));
    }
    return py_ended_list(parts, whole);
}

static bool is_misfit(py_explained_call *self, size_t signature, uint32_t i)
{
    size_t number = signature * self->signatures.table->runtime_count + i;
    return (self->match.takers[i] >> self->signatures.numbers[number] & 1) == 0;
}

PyObject *py_misfits(py_explained_call *self, size_t signature)
{
    return broken(self, signature, self->signatures.table->runtime_count, is_misfit);
}

static bool is_off_axis(py_explained_call *self, size_t case_number, uint32_t axis)
{
    return !nj_match_on_axis(&self->match, (uint32_t)case_number, axis);
}

PyObject *py_axes_apart(py_explained_call *self, size_t case_number)
{
    return broken(self, case_number, self->signatures.table->axis_count, is_off_axis);
}

PyObject *py_settings_apart(py_explained_call *self, size_t config)
{
    const nj_table *table = self->signatures.table;
    PyObject *names = PyList_New(0);
    bool whole = names != NULL;
    for (size_t place = 0; whole && place < table->param_count + self->coerced.option_count; place++) {
        if (nj_match_asks(&self->match, place) && !nj_match_sets(&self->match, (uint32_t)config, place)) {
            whole = py_append(names, py_text(place < table->param_count ? table->params[place].name
                                                                       : self->coerced.options[place - table->param_count]));
        }
    }
    return py_ended_list(names, whole);
}

PyObject *py_derived_apart(py_explained_call *self, size_t row)
{
    const nj_table *table = self->signatures.table;
    const nj_value *results = nj_match_derive(&self->match, nj_table_at(table, NJ_COLUMN_CASE, row), nj_table_at(table, NJ_COLUMN_CONFIG, row));
    const nj_constant *built = table->derived_values[nj_table_at(table, NJ_COLUMN_DERIVED, row)];
    PyObject *numbers = PyList_New(0);
    bool whole = numbers != NULL;
    for (uint32_t i = 0; whole && i < table->derived_count; i++) {
        whole = nj_match_is_result(&self->match, &results[i], &built[i]) || py_append(numbers, PyLong_FromUnsignedLong(i));
    }
    return py_ended_list(numbers, whole);
}

static bool is_failing(py_explained_call *self, size_t set, uint32_t i)
{
    return !nj_hint_holds(&self->signatures, &self->coerced.arguments, &self->signatures.table->hint_sets[set].hints[i]);
}

PyObject *py_failing_hints(py_explained_call *self, size_t set)
{
    return broken(self, set, self->signatures.table->hint_sets[set].count, is_failing);
}
