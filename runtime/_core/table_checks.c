#include "table_checks.h"

#include "objects.h"

#include "cold.h"

/* Whether what follows a param's name in a hint's leaf is places in tuples, `.1.0`, each in its one spelling. */
static bool are_places(PyObject *leaf, Py_ssize_t start)
{
    Py_ssize_t length = PyUnicode_GET_LENGTH(leaf), digits = 0;
    for (Py_ssize_t i = start; i < length; i++) {
        Py_UCS4 one = PyUnicode_READ_CHAR(leaf, i);
        if (one == '.') {
            if (i > start && digits == 0) {
                return false;
            }
            digits = 0;
        } else if (one < '0' || one > '9' || ++digits > 3 || (digits == 2 && PyUnicode_READ_CHAR(leaf, i - 1) == '0')) {
            return false;
        }
    }
    return start == length || digits > 0;
}

bool nj_hints_are_known(const nj_reading *it, PyObject *hint_sets)
{
    bool known = true;
    for (Py_ssize_t i = 0; known && i < PyTuple_GET_SIZE(hint_sets); i++) {
        PyObject *hints = PyTuple_GET_ITEM(hint_sets, i);
        for (Py_ssize_t j = 0; known && j < PyTuple_GET_SIZE(hints); j++) {
            PyObject *leaf = PyTuple_GET_ITEM(PyTuple_GET_ITEM(hints, j), 0);
            Py_ssize_t dot = PyUnicode_FindChar(leaf, '.', 0, PyUnicode_GET_LENGTH(leaf), 1);
            PyObject *name = dot < 0 ? Py_NewRef(leaf) : PyUnicode_Substring(leaf, 0, dot);
            known = name != NULL && PyDict_GetItemWithError(it->params, name) == NJ_RUNTIME &&
                    (dot < 0 || are_places(leaf, dot));
            Py_XDECREF(name);
        }
    }
    return known;
}

bool nj_batch_is_known(const nj_reading *it, PyObject *names)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        bool known = PyDict_GetItemWithError(it->params, name) == NJ_RUNTIME;
        for (Py_ssize_t j = 0; known && j < i; j++) {
            known = PyUnicode_Compare(PyTuple_GET_ITEM(names, j), name) != 0;
        }
        if (!known) {
            return false;
        }
    }
    return true;
}

/* Whether a name is a constexpr's that was not given before. */
static bool gives_value(const nj_reading *it, PyObject *name, PyObject *given, Py_ssize_t *still_needed)
{
    PyObject *param = PyDict_GetItemWithError(it->params, name);
    Py_ssize_t before = PySet_GET_SIZE(given);
    if (param == NULL || param == NJ_RUNTIME || PySet_Add(given, name) < 0 || PySet_GET_SIZE(given) == before) {
        return false;
    }
    *still_needed -= param == NJ_CONSTEXPR;
    return true;
}

/* Whether what a config gives, beside what is given for all configs, is one value for each constexpr. */
static bool gives_all(const nj_reading *it, PyObject *pairs)
{
    Py_ssize_t still_needed = it->needed_count;
    PyObject *given = PySet_New(NULL);
    bool right = given != NULL;
    for (Py_ssize_t i = 0; right && i < PyList_GET_SIZE(it->fixed); i++) {
        right = gives_value(it, PyList_GET_ITEM(it->fixed, i), given, &still_needed);
    }
    for (Py_ssize_t i = 0; right && pairs != NULL && i < PyTuple_GET_SIZE(pairs); i++) {
        right = gives_value(it, PyTuple_GET_ITEM(PyTuple_GET_ITEM(pairs, i), 0), given, &still_needed);
    }
    Py_XDECREF(given);
    return right && still_needed == 0;
}

/* Whether two configs give values to the same names: the objects, since most texts are made once. */
static bool same_names(PyObject *pairs, PyObject *others)
{
    bool same = others != NULL && PyTuple_GET_SIZE(pairs) == PyTuple_GET_SIZE(others);
    for (Py_ssize_t i = 0; same && i < PyTuple_GET_SIZE(pairs); i++) {
        same = PyTuple_GET_ITEM(PyTuple_GET_ITEM(pairs, i), 0) == PyTuple_GET_ITEM(PyTuple_GET_ITEM(others, i), 0);
    }
    return same;
}

bool nj_constexprs_are_valued(const nj_reading *it, PyObject *configs)
{
    PyObject *before = NULL;
    bool right = PyTuple_GET_SIZE(configs) > 0 || gives_all(it, NULL);
    for (Py_ssize_t i = 0; right && i < PyTuple_GET_SIZE(configs); i++) {
        PyObject *pairs = PyObject_GetAttrString(PyTuple_GET_ITEM(configs, i), "constexprs");
        right = pairs != NULL && (same_names(pairs, before) || gives_all(it, pairs));
        Py_XSETREF(before, pairs);
    }
    Py_XDECREF(before);
    return right;
}

static PyObject *distinct_types(PyObject *signatures, Py_ssize_t place)
{
    nj_items types;
    bool whole = true;
    nj_items_init(&types);
    for (Py_ssize_t i = 0; whole && i < PyTuple_GET_SIZE(signatures); i++) {
        PyObject *type = PyTuple_GET_ITEM(PyTuple_GET_ITEM(signatures, i), place);
        Py_ssize_t known = 0;
        while (known < types.count && types.at[known] != type && PyUnicode_Compare(types.at[known], type) != 0) {
            known++;
        }
        whole = known < types.count || (known < NJ_PAIRS_MAX && nj_items_add(&types, Py_NewRef(type)) == 0);
    }
    return nj_items_end(&types, whole);
}

PyObject *nj_param_types(const nj_reading *it, PyObject *signatures)
{
    PyObject *types = PyDict_New(), *name, *kind;
    Py_ssize_t at = 0, place = 0;
    while (types != NULL && PyDict_Next(it->params, &at, &name, &kind)) {
        PyObject *distinct = kind == NJ_RUNTIME ? distinct_types(signatures, place++) : NULL;
        if (kind == NJ_RUNTIME && (distinct == NULL || PyDict_SetItem(types, name, distinct) < 0)) {
            Py_CLEAR(types);
        }
        Py_XDECREF(distinct);
    }
    return types;
}
