#include "table_fields.h"

#include "launch_table.h"
#include "objects.h"
#include "tuning_table.h"
#include "expr/value.h"

#include "cold.h"

enum {
    SMALL_MAX = 1024,
    LAYOUT_CHARS_MAX = 1 << 18,
};

/* Set once by `nj_table_fields_init` under the import lock, and never changed. */
static struct {
    nj_record param, axis, derived, meaning, config;
    PyObject *missing;
} classes;

int nj_table_fields_init(void)
{
    static const char *const home = "nojit.runtime.table";
    bool found = nj_record_find(home, "Param", 3, &classes.param) == 0 && nj_record_find(home, "Axis", 3, &classes.axis) == 0 &&
                 nj_record_find(home, "Derived", 2, &classes.derived) == 0 &&
                 nj_record_find(home, "Meaning", 2, &classes.meaning) == 0 &&
                 nj_record_find(home, "Config", 3, &classes.config) == 0;
    PyObject *module = found ? PyImport_ImportModule(home) : NULL;
    Py_XSETREF(classes.missing, module == NULL ? NULL : PyObject_GetAttrString(module, "MISSING"));
    Py_XDECREF(module);
    return classes.missing == NULL ? -1 : 0;
}

PyObject *nj_missing(void)
{
    return classes.missing;
}

/* Takes the name of an axis, which no other has. */
static PyObject *read_axis_name(nj_reading *it)
{
    nj_span name;
    if (!nj_json_name(&it->json, &name)) {
        return NULL;
    }
    for (int64_t i = 0; i < it->axis_count; i++) {
        if (nj_span_equal(it->axis_names[i], name)) {
            return NULL;
        }
    }
    it->axis_names[it->axis_count] = name;
    return nj_read_word(it, name);
}

PyObject *nj_table_axis(nj_reading *it)
{
    bool is_type;
    if (!nj_json_is(&it->json, "{\"is_type\":") || !nj_json_flag(&it->json, &is_type) ||
        !nj_json_is(&it->json, ",\"name\":")) {
        return NULL;
    }
    PyObject *name = read_axis_name(it);
    if (name != NULL && !is_type && PyList_Append(it->fixed, name) < 0) {
        Py_CLEAR(name);
    }
    PyObject *values = name != NULL && nj_json_is(&it->json, ",\"values\":") ? nj_read_array(it, NJ_POOL_MAX, nj_read_value) : NULL;
    if (values != NULL) {
        it->axis_sizes[it->axis_count++] = PyTuple_GET_SIZE(values);
    }
    PyObject *axis = nj_record_make(&classes.axis, (PyObject *[]){name, PyBool_FromLong(is_type), values});
    return nj_read_closed(it, axis, '}');
}

static PyObject *read_pair(nj_reading *it)
{
    PyObject *name = nj_json_char(&it->json, '[') ? nj_read_name(it) : NULL;
    PyObject *value = name != NULL && nj_json_char(&it->json, ',') ? nj_read_value(it) : NULL;
    PyObject *pair = value != NULL && nj_json_char(&it->json, ']') ? PyTuple_Pack(2, name, value) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(value);
    return pair;
}

static PyObject *read_pairs(nj_reading *it)
{
    return nj_read_array(it, NJ_PAIRS_MAX, read_pair);
}

static int compare_names(PyObject *pairs, Py_ssize_t i, Py_ssize_t j)
{
    PyObject *one = PyTuple_GET_ITEM(PyTuple_GET_ITEM(pairs, i), 0), *other = PyTuple_GET_ITEM(PyTuple_GET_ITEM(pairs, j), 0);
    return one == other ? 0 : PyUnicode_Compare(one, other);
}

/* Whether no two of the pairs have one name: for few pairs, or sorted ones as a build makes them. */
static bool are_distinct(PyObject *pairs)
{
    Py_ssize_t count = PyTuple_GET_SIZE(pairs), sorted = 1;
    while (sorted < count && compare_names(pairs, sorted - 1, sorted) < 0) {
        sorted++;
    }
    bool distinct = sorted >= count || count <= NJ_PAIRS_MAX;
    for (Py_ssize_t i = sorted; distinct && i < count; i++) {
        for (Py_ssize_t j = 0; distinct && j < i; j++) {
            distinct = compare_names(pairs, j, i) != 0;
        }
    }
    return distinct;
}

PyObject *nj_table_config(nj_reading *it)
{
    PyObject *values[3] = {nj_json_is(&it->json, "{\"constexprs\":") ? read_pairs(it) : NULL};
    values[1] = values[0] != NULL && nj_json_is(&it->json, ",\"options\":") ? read_pairs(it) : NULL;
    bool goes_on = values[1] != NULL && are_distinct(values[1]) && nj_json_is(&it->json, ",\"requires\":");
    values[2] = goes_on ? nj_read_text(it) : NULL;
    PyObject *config = nj_record_make(&classes.config, values);
    return nj_read_closed(it, config, '}');
}

PyObject *nj_table_derived(nj_reading *it)
{
    PyObject *expression = nj_json_is(&it->json, "{\"expression\":") ? nj_read_text(it) : NULL;
    PyObject *name = expression != NULL && nj_json_is(&it->json, ",\"name\":") ? nj_read_name(it) : NULL;
    it->derived_count++;
    if (name != NULL && PyList_Append(it->fixed, name) < 0) {
        Py_CLEAR(name);
    }
    return nj_read_closed(it, nj_record_make(&classes.derived, (PyObject *[]){name, expression}), '}');
}

PyObject *nj_table_derived_values(nj_reading *it)
{
    const unsigned char *start = it->json.at;
    PyObject *values = nj_read_array(it, NJ_PAIRS_MAX, nj_read_value);
    if (values != NULL && (PyTuple_GET_SIZE(values) != it->derived_count || !nj_add_text(it->derived_texts, start, it->json.at))) {
        Py_CLEAR(values);
    }
    return values;
}

static PyObject *read_hint(nj_reading *it)
{
    int64_t hint;
    PyObject *leaf = nj_json_char(&it->json, '[') ? nj_read_name(it) : NULL;
    bool right = leaf != NULL && nj_json_char(&it->json, ',') && nj_json_int(&it->json, &hint) &&
                 (hint == 1 || hint == 16) && nj_json_char(&it->json, ']');
    PyObject *number = right ? PyLong_FromLongLong(hint) : NULL;
    PyObject *pair = number == NULL ? NULL : PyTuple_Pack(2, leaf, number);
    Py_XDECREF(leaf);
    Py_XDECREF(number);
    return pair;
}

PyObject *nj_table_hint_set(nj_reading *it)
{
    PyObject *hints = nj_read_array(it, SMALL_MAX, read_hint);
    if (hints != NULL && !are_distinct(hints)) {
        Py_CLEAR(hints);
    }
    return hints;
}

PyObject *nj_table_layout(nj_reading *it)
{
    nj_span text;
    return nj_json_text(&it->json, LAYOUT_CHARS_MAX, &text) ? nj_read_word(it, text) : NULL;
}

PyObject *nj_table_launch(nj_reading *it)
{
    const unsigned char *start = it->json.at;
    return nj_launch_pass(&it->json) ? PyBytes_FromStringAndSize((const char *)start, it->json.at - start) : NULL;
}

/* The rest of a meaning, behind its signature: a number for each axis. */
static PyObject *read_point(nj_reading *it)
{
    PyObject *point = PyTuple_New((Py_ssize_t)it->axis_count);
    for (int64_t axis = 0; point != NULL && axis < it->axis_count; axis++) {
        int64_t place;
        bool right = nj_json_char(&it->json, ',') && nj_json_count(&it->json, 0, it->axis_sizes[axis] - 1, &place);
        PyObject *number = right ? PyLong_FromLongLong(place) : NULL;
        if (number == NULL) {
            Py_CLEAR(point);
            break;
        }
        PyTuple_SET_ITEM(point, (Py_ssize_t)axis, number);
    }
    return point;
}

PyObject *nj_table_meaning(nj_reading *it)
{
    int64_t signature;
    if (!nj_json_char(&it->json, '[') || !nj_json_count(&it->json, 0, NJ_POOL_MAX, &signature)) {
        return NULL;
    }
    it->signatures_named = signature < it->signatures_named ? it->signatures_named : signature + 1;
    PyObject *point = nj_read_closed(it, read_point(it), ']');
    PyObject *number = point == NULL ? NULL : PyLong_FromLongLong(signature);
    return nj_record_make(&classes.meaning, (PyObject *[]){number, point});
}

static PyObject *read_default(nj_reading *it)
{
    if (nj_json_is(&it->json, "[]")) {
        return Py_NewRef(classes.missing);
    }
    PyObject *value = nj_json_char(&it->json, '[') ? nj_read_value(it) : NULL;
    return nj_read_closed(it, value, ']');
}

/* Notes what a param is; false if there was one of its name. */
static bool note_param(nj_reading *it, PyObject *name, bool constexpr, PyObject *given)
{
    PyObject *kind = !constexpr ? NJ_RUNTIME : given == classes.missing ? NJ_CONSTEXPR : NJ_DEFAULTED;
    Py_ssize_t before = PyDict_GET_SIZE(it->params);
    it->runtime_count += kind == NJ_RUNTIME;
    it->needed_count += kind == NJ_CONSTEXPR;
    return PyDict_SetItem(it->params, name, kind) == 0 && PyDict_GET_SIZE(it->params) > before;
}

PyObject *nj_table_param(nj_reading *it)
{
    bool constexpr;
    nj_span name;
    if (!nj_json_is(&it->json, "{\"constexpr\":") || !nj_json_flag(&it->json, &constexpr) ||
        !nj_json_is(&it->json, ",\"default\":")) {
        return NULL;
    }
    PyObject *given = read_default(it);
    /* a dot parts a param from its member */
    bool right = given != NULL && nj_json_is(&it->json, ",\"name\":") && nj_json_name(&it->json, &name) &&
                 memchr(name.at, '.', name.size) == NULL && nj_json_char(&it->json, '}');
    PyObject *text = right ? nj_read_word(it, name) : NULL;
    if (text != NULL && !note_param(it, text, constexpr, given)) {
        Py_CLEAR(text);
    }
    return nj_record_make(&classes.param, (PyObject *[]){text, PyBool_FromLong(constexpr), given});
}

/* Whether a text is the type of a scalar, or of a pointer. */
static bool is_plain_type(nj_span type)
{
    bool pointer = type.size > 0 && type.at[0] == '*';
    size_t start = pointer + (size_t)(pointer && type.size > 1 && type.at[1] == 'k');
    nj_span name = {type.at + start, type.size - start};
    for (int dtype = NJ_I1; dtype < (pointer ? NJ_DTYPE_COUNT : NJ_FP8E4NV); dtype++) {
        if (nj_span_is(name, nj_dtype_name((nj_dtype)dtype))) {
            return true;
        }
    }
    return nj_span_is(type, "none");
}

static PyObject *read_type(nj_reading *it)
{
    nj_span text;
    nj_word *word = nj_json_text(&it->json, NJ_TEXT_MAX, &text) ? nj_find_word(it, text) : NULL;
    if (word == NULL) {
        return NULL;
    }
    if (!word->is_type && !is_plain_type(text)) {
        PyObject *answer = nj_ask(it->is_type, Py_NewRef(word->object));
        Py_XDECREF(answer);
        if (answer != Py_True) {
            return NULL;
        }
    }
    word->is_type = true;
    return Py_NewRef(word->object);
}

/* A type for each runtime param. */
PyObject *nj_table_signature(nj_reading *it)
{
    PyObject *signature = nj_read_array(it, SMALL_MAX, read_type);
    if (signature != NULL && PyTuple_GET_SIZE(signature) != it->runtime_count) {
        Py_CLEAR(signature);
    }
    return signature;
}

PyObject *nj_table_tuning(nj_reading *it, Py_ssize_t meanings, Py_ssize_t configs)
{
    if (nj_json_is(&it->json, "null")) {
        Py_RETURN_NONE;
    }
    return nj_tuning_read(&it->json, meanings, configs);
}
