#include "meaning.h"

#include "expr/postfix.h"

#include "cold.h"

/* Set once by `nj_meaning_init` under the import lock, and never changed. */
static PyObject *names[NJ_FIELD_COUNT];

int nj_meaning_init(void)
{
    static const char *const spelled[NJ_FIELD_COUNT] = {
        [NJ_FIELD_AXES] = "axes",
        [NJ_FIELD_BLOCK] = "block",
        [NJ_FIELD_BLOCKS] = "blocks",
        [NJ_FIELD_COLUMNS] = "columns",
        [NJ_FIELD_CONFIGS] = "configs",
        [NJ_FIELD_CONSTEXPRS] = "constexprs",
        [NJ_FIELD_COOPERATIVE] = "cooperative",
        [NJ_FIELD_DEFAULT] = "default",
        [NJ_FIELD_DERIVED] = "derived",
        [NJ_FIELD_DERIVED_VALUES] = "derived_values",
        [NJ_FIELD_DEVICE] = "device",
        [NJ_FIELD_ELEMENT_BYTES] = "element_bytes",
        [NJ_FIELD_ELEMENT_TYPE] = "element_type",
        [NJ_FIELD_EXPRESSION] = "expression",
        [NJ_FIELD_FP4_PADDED] = "fp4_padded",
        [NJ_FIELD_GLOBAL_SCRATCH_ALIGN] = "global_scratch_align",
        [NJ_FIELD_GLOBAL_SCRATCH_BYTES] = "global_scratch_bytes",
        [NJ_FIELD_GRID] = "grid",
        [NJ_FIELD_HINT_SETS] = "hint_sets",
        [NJ_FIELD_IS_CONSTEXPR] = "constexpr",
        [NJ_FIELD_IS_TYPE] = "is_type",
        [NJ_FIELD_KEY] = "key",
        [NJ_FIELD_LAYOUT] = "layout",
        [NJ_FIELD_MEANINGS] = "meanings",
        [NJ_FIELD_NAME] = "name",
        [NJ_FIELD_NUM_CTAS] = "num_ctas",
        [NJ_FIELD_NUM_WARPS] = "num_warps",
        [NJ_FIELD_OPTIONS] = "options",
        [NJ_FIELD_PARAMS] = "params",
        [NJ_FIELD_PDL] = "pdl",
        [NJ_FIELD_PROFILE_SCRATCH_ALIGN] = "profile_scratch_align",
        [NJ_FIELD_PROFILE_SCRATCH_BYTES] = "profile_scratch_bytes",
        [NJ_FIELD_PROGRAMS] = "programs",
        [NJ_FIELD_REQUIRES] = "requires",
        [NJ_FIELD_SHARED_BYTES] = "shared_bytes",
        [NJ_FIELD_SIGNATURES] = "signatures",
        [NJ_FIELD_SIGNATURE] = "signature",
        [NJ_FIELD_SOURCE] = "source",
        [NJ_FIELD_SWIZZLE] = "swizzle",
        [NJ_FIELD_SYMBOL] = "symbol",
        [NJ_FIELD_TENSOR_MAPS] = "tensor_maps",
        [NJ_FIELD_TEXT] = "text",
        [NJ_FIELD_TUNING] = "tuning",
        [NJ_FIELD_VALUES] = "values",
    };
    for (int i = 0; i < NJ_FIELD_COUNT; i++) {
        Py_XSETREF(names[i], PyUnicode_InternFromString(spelled[i]));
        if (names[i] == NULL) {
            return -1;
        }
    }
    return 0;
}

PyObject *nj_peek(PyObject *record, nj_field_name field)
{
    PyObject *value = record == NULL ? NULL : PyObject_GetAttr(record, names[field]);
    if (value == NULL) {
        PyErr_Clear();
        return NULL;
    }
    /* what nobody else holds is no field of a record, and would be gone */
    bool kept = Py_REFCNT(value) > 1;
    Py_DECREF(value);
    return kept ? value : NULL;
}

Py_ssize_t nj_size(PyObject *tuple)
{
    return tuple != NULL && PyTuple_Check(tuple) ? PyTuple_GET_SIZE(tuple) : 0;
}

PyObject *nj_item(PyObject *tuple, Py_ssize_t place)
{
    return place >= 0 && place < nj_size(tuple) ? PyTuple_GET_ITEM(tuple, place) : NULL;
}

static bool same_text(PyObject *one, PyObject *other)
{
    return one == other || (PyUnicode_CheckExact(one) && PyUnicode_CheckExact(other) && PyUnicode_Compare(one, other) == 0);
}

Py_ssize_t nj_param_place(const nj_signature *signature, PyObject *name)
{
    for (Py_ssize_t i = 0; i < signature->param_count; i++) {
        if (same_text(signature->names[i], name)) {
            return i;
        }
    }
    return -1;
}

bool nj_is_simple(PyObject *value)
{
    return value != NULL && (value == Py_None || PyBool_Check(value) || PyLong_CheckExact(value) ||
                             PyFloat_CheckExact(value) || PyUnicode_CheckExact(value));
}

bool nj_is_same(PyObject *simple, PyObject *value)
{
    if (simple == value) {
        return true;
    }
    if (value == NULL || Py_TYPE(simple) != Py_TYPE(value)) {
        return false;
    }
    if (PyFloat_CheckExact(simple)) {
        return nj_opaque_double(PyFloat_AS_DOUBLE(simple)) == nj_opaque_double(PyFloat_AS_DOUBLE(value));
    }
    if (PyLong_CheckExact(simple)) {
        return PyObject_RichCompareBool(simple, value, Py_EQ) == 1;
    }
    return PyUnicode_CheckExact(simple) && PyUnicode_Compare(simple, value) == 0;
}

/* The instruction that pushes a constant; false for one that only Python knows. */
static bool push_constant(const nj_scene *scene, PyObject *value, nj_instruction *push)
{
    if (!nj_is_simple(value)) {
        return false;
    }
    if (value == Py_None) {
        push->op = NJ_OP_CONST_NONE;
    } else if (PyBool_Check(value)) {
        *push = (nj_instruction){.op = NJ_OP_CONST_BOOL, .operand = value == Py_True};
    } else if (PyFloat_CheckExact(value)) {
        *push = (nj_instruction){.op = NJ_OP_CONST_OPAQUE, .operand = nj_opaque_double(PyFloat_AS_DOUBLE(value))};
    } else if (PyLong_CheckExact(value)) {
        int overflow;
        *push = (nj_instruction){.op = NJ_OP_CONST_INT, .operand = PyLong_AsLongLongAndOverflow(value, &overflow)};
        return overflow == 0;
    } else {
        PyObject *id = PyDict_GetItemWithError(scene->choosing->signature->interned, value);
        *push = (nj_instruction){.op = NJ_OP_CONST_OPAQUE, .operand = id == NULL ? -1 : PyLong_AsLongLong(id)};
        if (id == NULL) {
            PyErr_Clear();
        }
        return id != NULL;
    }
    return true;
}

static bool is_name(PyObject *text, nj_span name)
{
    Py_ssize_t size;
    const char *spelled = text != NULL && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
    if (spelled == NULL) {
        PyErr_Clear();
        return false;
    }
    return nj_span_equal((nj_span){(const unsigned char *)spelled, (size_t)size}, name);
}

/* The value of a name among (name, value) pairs; NULL if it is not there. */
static PyObject *find_pair(PyObject *pairs, nj_span name)
{
    for (Py_ssize_t i = nj_size(pairs); i-- > 0;) {
        if (is_name(nj_item(nj_item(pairs, i), 0), name)) {
            return nj_item(nj_item(pairs, i), 1);
        }
    }
    return NULL;
}

/* Where a name is known, or would be. */
static nj_known_name *known_name(const nj_known_names *known, nj_span name)
{
    uint64_t hash = known->seed ^ name.size;
    for (size_t i = 0; i < name.size; i++) {
        hash = (hash ^ name.at[i]) * UINT64_C(0x100000001b3);
    }
    size_t at = (size_t)(hash ^ hash >> 32) & known->mask;
    while (known->names[at].name.at != NULL && !nj_span_equal(known->names[at].name, name)) {
        at = (at + 1) & known->mask;
    }
    return &known->names[at];
}

/* Makes a name known, unless it is; false with an exception raised. */
static bool know_name(const nj_known_names *known, PyObject *text, Py_ssize_t place)
{
    Py_ssize_t size;
    const char *spelled = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, &size);
    if (spelled == NULL) {
        return false;
    }
    nj_span name = {(const unsigned char *)spelled, (size_t)size};
    nj_known_name *there = known_name(known, name);
    if (there->name.at == NULL) {
        *there = (nj_known_name){name, place};
    }
    return true;
}

void nj_known_names_clear(nj_known_names *known)
{
    PyMem_Free(known->names);
    known->names = NULL;
}

/* Makes the names of a table known, once; false without an exception where they cannot be. */
static bool know_names(const nj_scene *scene)
{
    nj_known_names *known = scene->known;
    const nj_signature *signature = scene->choosing->signature;
    PyObject *axes = nj_peek(scene->table, NJ_FIELD_AXES);
    size_t room = 16;
    if (known->names != NULL) {
        return true;
    }
    while (room < 2 * (size_t)(nj_size(axes) + signature->param_count)) {
        room *= 2;
    }
    known->names = PyMem_Calloc(room, sizeof *known->names);
    known->mask = room - 1;
    known->seed = (uint64_t)(uintptr_t)known->names * UINT64_C(0x9e3779b97f4a7c15);
    bool whole = known->names != NULL;
    for (Py_ssize_t i = 0; whole && i < nj_size(axes); i++) {
        whole = know_name(known, nj_peek(nj_item(axes, i), NJ_FIELD_NAME), -1 - i);
    }
    for (Py_ssize_t i = 0; whole && i < signature->param_count; i++) {
        whole = know_name(known, signature->names[i], i);
    }
    if (!whole) {
        PyErr_Clear();
        nj_known_names_clear(known);
    }
    return whole;
}

/* Pushes the value of an axis in this scene. */
static bool push_axis(nj_scene *scene, Py_ssize_t number, nj_instruction *push)
{
    PyObject *axis = nj_item(nj_peek(scene->table, NJ_FIELD_AXES), number), *place = nj_item(scene->point, number);
    scene->asks_types |= nj_peek(axis, NJ_FIELD_IS_TYPE) == Py_True;
    return place != NULL && push_constant(scene, nj_item(nj_peek(axis, NJ_FIELD_VALUES), PyLong_AsSsize_t(place)), push);
}

static bool find_name(void *context, nj_span name, nj_instruction *push)
{
    nj_scene *scene = context;
    if (nj_span_is(name, "arch")) {
        *push = (nj_instruction){.op = NJ_OP_CONST_INT, .operand = scene->choosing->spec->arch};
        return true;
    }
    /* options before constexprs: of equal names the last counts */
    PyObject *value = find_pair(nj_peek(scene->config, NJ_FIELD_OPTIONS), name);
    value = value != NULL ? value : find_pair(nj_peek(scene->config, NJ_FIELD_CONSTEXPRS), name);
    if (value != NULL) {
        return push_constant(scene, value, push);
    }
    const nj_known_name *known = known_name(scene->known, name);
    if (known->name.at == NULL) {
        return false;
    }
    if (known->place < 0) {
        return push_axis(scene, -1 - known->place, push);
    }
    if (!scene->choosing->signature->constexprs[known->place]) {
        *push = (nj_instruction){.op = NJ_OP_LOAD, .operand = known->place};
        return true;
    }
    PyObject *param = nj_item(nj_peek(scene->table, NJ_FIELD_PARAMS), known->place);
    return push_constant(scene, nj_peek(param, NJ_FIELD_DEFAULT), push);
}

int nj_evaluate(nj_scene *scene, Py_ssize_t number, nj_value *result)
{
    PyObject *text = nj_item(nj_peek(scene->table, NJ_FIELD_PROGRAMS), number);
    const nj_choosing *it = scene->choosing;
    nj_assembly made;
    Py_ssize_t size;
    const char *words = text != NULL && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
    if (words == NULL) {
        PyErr_Clear();
        return -1;
    }
    if (!know_names(scene) || !nj_assemble((nj_span){(const unsigned char *)words, (size_t)size}, find_name, scene,
                                           (size_t)it->signature->count, &made)) {
        return -1;
    }
    return nj_run(&(nj_program){(uint32_t)made.length, made.code}, it->call->values, result, NULL);
}
