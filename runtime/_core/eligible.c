#include "eligible.h"

#include "cold.h"

/* Whether an argument says all that decides: no member of a tuple does, nor an address that may point to several types. */
static bool is_plain(const nj_value *value, const nj_field *field)
{
    bool open = value->tag == NJ_TAG_POINTER && value->dtype == NJ_DTYPE_NONE && field->type_count != 1;
    return (value->tag <= NJ_TAG_UINT && !open) || value->tag == NJ_TAG_DESCRIPTOR;
}

bool nj_is_common(const nj_choice *choice)
{
    const nj_signature *signature = choice->it->signature;
    const nj_call *call = choice->it->call;
    for (Py_ssize_t i = signature->param_count; i < signature->count; i++) {
        if (call->objects[i] != NULL) {
            return false;
        }
    }
    Py_ssize_t constexprs = 0, meant = 0;
    for (Py_ssize_t i = 0; i < signature->param_count; i++) {
        constexprs += signature->constexprs[i] && call->objects[i] != NULL;
        if (!signature->constexprs[i] && !is_plain(&call->values[i], &choice->it->spec->fields[i])) {
            return false;
        }
    }
    for (Py_ssize_t i = 0; i < nj_size(choice->axes); i++) {
        Py_ssize_t place = nj_param_place(signature, nj_peek(nj_item(choice->axes, i), NJ_FIELD_NAME));
        meant += place >= 0 && signature->constexprs[place] && call->objects[place] != NULL;
    }
    return constexprs == meant;
}

/* Finds the value of an axis that the call means, by its number; -1 where Python must look. */
static Py_ssize_t find_wanted(const nj_choice *choice, PyObject *axis)
{
    Py_ssize_t place = nj_param_place(choice->it->signature, nj_peek(axis, NJ_FIELD_NAME));
    PyObject *value = place < 0 ? NULL : choice->it->call->objects[place];
    if (value == NULL) {
        value = nj_peek(nj_item(nj_peek(choice->table, NJ_FIELD_PARAMS), place), NJ_FIELD_DEFAULT);
    }
    PyObject *values = nj_peek(axis, NJ_FIELD_VALUES);
    for (Py_ssize_t i = 0; nj_is_simple(value) && i < nj_size(values); i++) {
        if (nj_is_same(value, nj_item(values, i))) {
            return i;
        }
    }
    return -1;
}

bool nj_find_point(nj_choice *choice)
{
    for (Py_ssize_t i = 0; i < nj_size(choice->axes); i++) {
        PyObject *axis = nj_item(choice->axes, i);
        choice->wanted[i] = -1;
        if (nj_peek(axis, NJ_FIELD_IS_TYPE) != Py_True && (choice->wanted[i] = find_wanted(choice, axis)) < 0) {
            return false;
        }
    }
    return true;
}

/* Whether one of a param's types takes the argument, as the call's key says. */
static bool takes(const nj_choice *choice, Py_ssize_t param, PyObject *type)
{
    const nj_field *field = &choice->it->spec->fields[param];
    uint64_t bits = choice->it->key->words[field->word] >> field->shift;
    for (int i = 0; i < field->type_count; i++) {
        PyObject *known = nj_item(field->spelled, i);
        if (known == type || (known != NULL && PyUnicode_Compare(known, type) == 0)) {
            return bits >> i & 1;
        }
    }
    return false;
}

/* The width of an int's type; 0 for any other. */
static int width_of(PyObject *type)
{
    const char *text = PyUnicode_AsUTF8(type);
    if (text == NULL || (*text != 'i' && *text != 'u') || strcmp(text + 1, "1") == 0) {
        return 0;
    }
    return (int)strtol(text + 1, NULL, 10);
}

/* Whether a signature takes the arguments, and the width of its ints together. */
static bool fits(nj_choice *choice, Py_ssize_t number, int64_t *bits)
{
    const nj_signature *signature = choice->it->signature;
    PyObject *types = nj_item(choice->signatures, number);
    Py_ssize_t place = 0;
    if (types == NULL || choice->fit[number] == NJ_DOES_NOT_FIT) {
        return false;
    }
    *bits = 0;
    for (Py_ssize_t i = 0; i < signature->param_count; i++) {
        PyObject *type = signature->constexprs[i] ? NULL : nj_item(types, place++);
        if (type != NULL && choice->fit[number] == NJ_NOT_ASKED && !takes(choice, i, type)) {
            choice->fit[number] = NJ_DOES_NOT_FIT;
            return false;
        }
        *bits += type == NULL ? 0 : width_of(type);
    }
    choice->fit[number] = NJ_FITS;
    return true;
}

static bool is_meant(nj_choice *choice, PyObject *meaning, int64_t *bits)
{
    PyObject *values = nj_peek(meaning, NJ_FIELD_VALUES), *signature = nj_peek(meaning, NJ_FIELD_SIGNATURE);
    for (Py_ssize_t i = 0; i < nj_size(choice->axes); i++) {
        PyObject *place = nj_item(values, i);
        if (choice->wanted[i] >= 0 && (place == NULL || PyLong_AsSsize_t(place) != choice->wanted[i])) {
            return false;
        }
    }
    return signature != NULL && fits(choice, PyLong_AsSsize_t(signature), bits);
}

bool nj_is_meant(nj_choice *choice, Py_ssize_t number, int64_t *bits)
{
    /* the rows of a meaning are neighbours */
    if (number != choice->judged) {
        choice->judged = number;
        choice->judged_meant = is_meant(choice, nj_item(choice->meanings, number), &choice->judged_bits);
    }
    *bits = choice->judged_bits;
    return choice->judged_meant;
}

static bool hint_holds(const nj_choice *choice, PyObject *hint)
{
    PyObject *leaf = nj_item(hint, 0), *what = nj_item(hint, 1);
    Py_ssize_t place = leaf == NULL ? -1 : nj_param_place(choice->it->signature, leaf);
    if (place < 0 || what == NULL) {
        return false; /* a member of a tuple, which no argument is */
    }
    const nj_value *value = &choice->it->call->values[place];
    bool number = value->tag == NJ_TAG_INT || value->tag == NJ_TAG_UINT;
    if (PyLong_AsLong(what) == 1) {
        return value->tag == NJ_TAG_INT && value->bits == 1;
    }
    return (number || value->tag == NJ_TAG_POINTER) && (value->bits & 15) == 0;
}

bool nj_hints_hold(nj_choice *choice, uint32_t number)
{
    PyObject *hints = nj_item(choice->hint_sets, number);
    if (choice->held[number] == NJ_NOT_ASKED) {
        bool holds = true;
        for (Py_ssize_t i = 0; holds && i < nj_size(hints); i++) {
            holds = hint_holds(choice, nj_item(hints, i));
        }
        choice->held[number] = holds ? NJ_FITS : NJ_DOES_NOT_FIT;
    }
    return choice->held[number] == NJ_FITS;
}

/* Whether what a program gave is a value that was compiled in. */
static bool is_result(nj_choice *choice, const nj_value *result, PyObject *value)
{
    switch (result->tag) {
    case NJ_TAG_NONE: return value == Py_None;
    case NJ_TAG_BOOL: return value == (result->bits ? Py_True : Py_False);
    case NJ_TAG_INT: {
        int overflow;
        return PyLong_CheckExact(value) && PyLong_AsLongLongAndOverflow(value, &overflow) == result->bits && overflow == 0;
    }
    default: choice->unsure = true; return false;
    }
}

static bool has_requires(const nj_choice *choice, Py_ssize_t config)
{
    PyObject *requires = nj_peek(nj_item(choice->configs, config), NJ_FIELD_REQUIRES);
    return requires != NULL && PyObject_IsTrue(requires) == 1;
}

int nj_choice_start(nj_choice *choice)
{
    size_t signatures = (size_t)nj_size(choice->signatures), hint_sets = (size_t)nj_size(choice->hint_sets);
    Py_ssize_t configs = nj_size(choice->configs);
    choice->judged = -1;
    choice->fit = PyMem_Calloc(signatures + hint_sets + 1, 1);
    choice->ran = PyMem_Calloc((size_t)configs + 1, sizeof *choice->ran);
    if (choice->fit == NULL || choice->ran == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    choice->held = choice->fit + signatures;
    /* programs of the grid, of derived constexprs and of the tuning key come first */
    PyObject *tuning = nj_peek(choice->table, NJ_FIELD_TUNING);
    Py_ssize_t number = nj_size(nj_peek(choice->table, NJ_FIELD_GRID)) + nj_size(choice->derived);
    number += tuning == NULL || tuning == Py_None ? 0 : nj_size(nj_peek(tuning, NJ_FIELD_KEY));
    for (Py_ssize_t i = 0; i < configs; i++) {
        choice->ran[i].requires = has_requires(choice, i) ? (int32_t)number++ : -1;
    }
    return 0;
}

void nj_choice_end(nj_choice *choice)
{
    for (Py_ssize_t i = 0; choice->ran != NULL && i < nj_size(choice->configs); i++) {
        PyMem_Free(choice->ran[i].derived);
    }
    PyMem_Free(choice->ran);
    PyMem_Free(choice->fit);
    nj_known_names_clear(&choice->known);
}

/* Evaluates one program; false where it fails, or Python must. */
static bool evaluate(nj_choice *choice, nj_scene *scene, Py_ssize_t number, nj_value *result)
{
    int done = nj_evaluate(scene, number, result);
    choice->unsure |= done < 0;
    return done == 1;
}

static bool runs(nj_choice *choice, nj_scene *scene, int32_t requires, nj_value *derived)
{
    nj_value result;
    if (requires >= 0 && !(evaluate(choice, scene, requires, &result) && result.tag == NJ_TAG_BOOL && result.bits)) {
        return false;
    }
    Py_ssize_t grid = nj_size(nj_peek(choice->table, NJ_FIELD_GRID));
    for (Py_ssize_t i = 0; i < nj_size(choice->derived); i++) {
        if (!evaluate(choice, scene, grid + i, &derived[i])) {
            return false;
        }
    }
    return true;
}

bool nj_runs(nj_choice *choice, const nj_run_of_rows *rows, nj_value *derived)
{
    size_t bytes = (size_t)nj_size(choice->derived) * sizeof *derived;
    nj_ran *ran = rows->config < nj_size(choice->configs) ? &choice->ran[rows->config] : NULL;
    if (ran == NULL || ran->runs == NJ_DOES_NOT_FIT) {
        return false;
    }
    if (ran->runs == NJ_FITS) {
        memcpy(derived, ran->derived, bytes);
        return true;
    }
    nj_scene scene = {
        .choosing = choice->it,
        .table = choice->table,
        .config = nj_item(choice->configs, rows->config),
        .point = nj_peek(nj_item(choice->meanings, rows->meaning), NJ_FIELD_VALUES),
        .known = &choice->known,
    };
    bool done = runs(choice, &scene, ran->requires, derived);
    /* the axes that are constexprs have the call's values in each meaning that is looked at */
    if (!scene.asks_types && !choice->unsure && (!done || (ran->derived = PyMem_Malloc(bytes + 1)) != NULL)) {
        ran->runs = done ? NJ_FITS : NJ_DOES_NOT_FIT;
        memcpy(done ? ran->derived : derived, derived, done ? bytes : 0);
    }
    return done;
}

bool nj_is_derived(nj_choice *choice, uint32_t number, const nj_value *derived)
{
    PyObject *values = nj_item(choice->derived_values, number);
    bool right = values != NULL;
    for (Py_ssize_t i = 0; right && i < nj_size(choice->derived); i++) {
        PyObject *value = nj_item(values, i);
        right = value != NULL && is_result(choice, &derived[i], value);
    }
    return right;
}
