#include "spec_fields.h"

#include "meaning.h"
#include "objects.h"
#include "table_parts.h"

#include "cold.h"

#define TYPES_MAX 60

/* Whether every type is a pointer, None apart. */
static bool takes_addresses(const nj_field *field)
{
    bool any = false;
    for (int i = 0; i < field->type_count; i++) {
        uint16_t tags = field->types[i].tags;
        if (tags != NJ_BIT(NJ_TAG_NONE) && tags != NJ_BIT(NJ_TAG_POINTER)) {
            return false;
        }
        any |= tags == NJ_BIT(NJ_TAG_POINTER);
    }
    return any;
}

/* Takes the types of a runtime param. */
static int read_types(nj_field *field, PyObject *interner, PyObject *types)
{
    Py_ssize_t count = PyTuple_GET_SIZE(types);
    if (count > TYPES_MAX) {
        PyErr_Format(PyExc_ValueError, "expected at most %d types of one param, got %zd", TYPES_MAX, count);
        return -1;
    }
    field->spelled = Py_NewRef(types);
    field->types = PyMem_Calloc((size_t)count + 1, sizeof *field->types);
    field->pointers = PyMem_Calloc(NJ_DTYPE_COUNT, sizeof *field->pointers);
    if (field->types == NULL || field->pointers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *text = PyUnicode_AsUTF8(PyTuple_GET_ITEM(types, i));
        if (text == NULL) {
            return -1;
        }
        field->type_count++;
        if (nj_type_read(text, interner, &field->types[i]) < 0) {
            return -1;
        }
        field->tuple |= field->types[i].tags == NJ_BIT(NJ_TAG_TUPLE);
        if (nj_pointee(text) != NJ_DTYPE_COUNT) {
            field->pointers[nj_pointee(text)] |= UINT64_C(1) << i;
            field->pointers[NJ_DTYPE_NONE] |= UINT64_C(1) << i;
        }
    }
    field->address = takes_addresses(field);
    return 0;
}

static nj_field_kind kind_of(const nj_field *field)
{
    if (field->type_count == 1 && field->types[0].tags == NJ_BIT(NJ_TAG_INT) && !field->types[0].constant) {
        return NJ_FIELD_INT;
    }
    return field->pointers[NJ_DTYPE_NONE] != 0 ? NJ_FIELD_POINTER : NJ_FIELD_ANY;
}

/* What a table's values are numbered by: a `nojit.runtime.keys.Interner`. */
typedef struct {
    PyObject *interner;
    PyObject *strings; /* its dict of those that have a number */
} nj_numbering;

/* Gives a value a number, unless a key holds it as it is. */
static int number_value(const nj_numbering *by, PyObject *value)
{
    if (value == Py_None || PyLong_Check(value) || PyFloat_CheckExact(value) || value == nj_missing()) {
        return 0;
    }
    if (PyUnicode_CheckExact(value)) {
        int known = PyDict_Contains(by->strings, value);
        if (known != 0) {
            return known < 0 ? -1 : 0;
        }
    }
    PyObject *bits = PyObject_CallMethod(by->interner, "add", "(O)", value);
    Py_XDECREF(bits);
    return bits == NULL ? -1 : 0;
}

/* Numbers the second of each pair. */
static int number_pairs(const nj_numbering *by, PyObject *pairs)
{
    for (Py_ssize_t i = 0; i < nj_size(pairs); i++) {
        PyObject *value = nj_item(PyTuple_GET_ITEM(pairs, i), 1);
        if (value != NULL && number_value(by, value) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Numbers the values of axes and configs. */
static int number_values(const nj_numbering *by, PyObject *table)
{
    PyObject *axes = nj_peek(table, NJ_FIELD_AXES), *configs = nj_peek(table, NJ_FIELD_CONFIGS);
    for (Py_ssize_t i = 0; i < nj_size(axes); i++) {
        PyObject *axis = nj_item(axes, i), *values = nj_peek(axis, NJ_FIELD_VALUES);
        bool called = nj_peek(axis, NJ_FIELD_IS_TYPE) != Py_True;
        for (Py_ssize_t place = 0; called && place < nj_size(values); place++) {
            if (number_value(by, nj_item(values, place)) < 0) {
                return -1;
            }
        }
    }
    for (Py_ssize_t i = 0; i < nj_size(configs); i++) {
        PyObject *config = nj_item(configs, i);
        if (number_pairs(by, nj_peek(config, NJ_FIELD_CONSTEXPRS)) < 0 || number_pairs(by, nj_peek(config, NJ_FIELD_OPTIONS)) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Whether a name is that of an axis. */
static bool is_axis(PyObject *axes, PyObject *name)
{
    for (Py_ssize_t i = 0; i < nj_size(axes); i++) {
        PyObject *axis = nj_peek(nj_item(axes, i), NJ_FIELD_NAME);
        if (axis == name || (axis != NULL && PyUnicode_Compare(axis, name) == 0)) {
            return true;
        }
    }
    return false;
}

/* What programs see of a constexpr that a call leaves out. */
static int read_fallback(nj_field *field, const nj_numbering *by, PyObject *value)
{
    int overflow = 0, tag;
    long long bits;
    field->fallback.tag = NJ_TAG_NONE;
    if (value == Py_None) {
        return 0;
    }
    if (PyBool_Check(value)) {
        field->fallback = (nj_value){.tag = NJ_TAG_BOOL, .bits = value == Py_True};
        return 0;
    }
    if (PyLong_CheckExact(value) && (bits = PyLong_AsLongLongAndOverflow(value, &overflow), overflow == 0)) {
        field->fallback = (nj_value){.tag = NJ_TAG_INT, .bits = bits};
        return 0;
    }
    PyObject *key = PyObject_CallMethod(by->interner, "seen", "(O)", value);
    bool read = nj_is_tuple(key, "a key: (tag, bits)") && PyArg_ParseTuple(key, "iL", &tag, &bits);
    Py_XDECREF(key);
    if (read) {
        field->fallback = (nj_value){.tag = (uint8_t)tag, .bits = bits};
    }
    return read ? 0 : -1;
}

static int read_constexpr(nj_field *field, const nj_numbering *by, PyObject *axes, PyObject *param)
{
    PyObject *given = nj_peek(param, NJ_FIELD_DEFAULT), *name = nj_peek(param, NJ_FIELD_NAME);
    field->kind = NJ_FIELD_CONSTEXPR;
    field->fallback.tag = NJ_TAG_MISSING;
    if (given == NULL || given == nj_missing()) {
        return 0;
    }
    if (number_value(by, given) < 0) {
        return -1;
    }
    return is_axis(axes, name) ? read_fallback(field, by, given) : 0;
}

static int read_param(nj_field *field, PyObject *interner, PyObject *types, PyObject *param)
{
    PyObject *name = nj_peek(param, NJ_FIELD_NAME), *spelled = name == NULL ? NULL : PyDict_GetItemWithError(types, name);
    if (spelled == NULL || !PyTuple_Check(spelled)) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_ValueError, "expected types for every param, got none for %R", name == NULL ? Py_None : name);
        }
        return -1;
    }
    if (read_types(field, interner, spelled) < 0) {
        return -1;
    }
    field->kind = (uint8_t)kind_of(field);
    return 0;
}

/* Notes which hints matter to which params; those of members of tuples matter in any case. */
static int note_hints(nj_spec *spec, PyObject *hint_sets, PyObject *slots)
{
    for (Py_ssize_t i = 0; i < nj_size(hint_sets); i++) {
        PyObject *hints = nj_item(hint_sets, i);
        for (Py_ssize_t j = 0; j < nj_size(hints); j++) {
            PyObject *pair = nj_item(hints, j), *leaf = nj_item(pair, 0), *hint = nj_item(pair, 1);
            PyObject *slot = leaf == NULL || hint == NULL ? NULL : PyDict_GetItemWithError(slots, leaf);
            Py_ssize_t place = slot == NULL ? -1 : PyLong_AsSsize_t(slot);
            if (place >= 0 && place < spec->argument_count) {
                bool one = PyLong_AsLong(hint) == 1;
                spec->fields[place].hint_1 |= one;
                spec->fields[place].hint_16 |= !one;
            }
            if (PyErr_Occurred()) {
                return -1;
            }
        }
    }
    return 0;
}

int nj_spec_read_fields(nj_spec *spec, PyObject *slots, PyObject *interner)
{
    PyObject *params = nj_peek(spec->table, NJ_FIELD_PARAMS), *axes = nj_peek(spec->table, NJ_FIELD_AXES);
    PyObject *types = PyObject_CallMethod(spec->table, "param_types", NULL);
    nj_numbering by = {interner, types == NULL ? NULL : PyObject_GetAttrString(interner, "strings")};
    bool ready = by.strings != NULL && PyDict_Check(types) && PyDict_Check(by.strings);
    int status = ready && nj_size(params) == PyDict_GET_SIZE(slots) ? 0 : -1;
    if (!ready && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "expected dicts of types and of strings");
    } else if (status < 0 && !PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "expected a slot for each of %zd params, got %zd", nj_size(params), PyDict_GET_SIZE(slots));
    }
    for (Py_ssize_t i = 0; status == 0 && i < nj_size(params); i++) {
        PyObject *param = nj_item(params, i);
        bool constexpr = nj_peek(param, NJ_FIELD_IS_CONSTEXPR) == Py_True;
        status = constexpr ? read_constexpr(&spec->fields[i], &by, axes, param) : read_param(&spec->fields[i], interner, types, param);
    }
    if (status == 0) {
        status = number_values(&by, spec->table) < 0 ? -1 : note_hints(spec, nj_peek(spec->table, NJ_FIELD_HINT_SETS), slots);
    }
    for (Py_ssize_t i = nj_size(params); i < spec->argument_count; i++) {
        spec->fields[i] = (nj_field){.kind = NJ_FIELD_CONSTEXPR, .fallback.tag = NJ_TAG_MISSING};
    }
    Py_XDECREF(types);
    Py_XDECREF(by.strings);
    return status;
}
