#include "values/argument_records.h"

#include "module.h"
#include "python/callbacks.h"
#include "python/exceptions.h"
#include "python/records.h"
#include "python/utf8.h"
#include "values/make_value.h"
#include "values/py_value.h"

#include "select/coerced_call.h"
#include "select/constexpr.h"
#include "select/signatures.h"

/* The fields of an `Argument`; owned. */
typedef struct {
    PyObject *kind, *value, *dtype, *items;
} argument_fields;

static void clear_fields(argument_fields *fields)
{
    Py_XDECREF(fields->kind);
    Py_XDECREF(fields->value);
    Py_XDECREF(fields->dtype);
    Py_XDECREF(fields->items);
}

static bool take_fields(PyObject *argument, argument_fields *fields)
{
    fields->kind = PyObject_GetAttr(argument, py_asked.kind);
    fields->value = fields->kind == NULL ? NULL : PyObject_GetAttr(argument, py_asked.value);
    fields->dtype = fields->value == NULL ? NULL : PyObject_GetAttr(argument, py_asked.dtype);
    fields->items = fields->dtype == NULL ? NULL : PyObject_GetAttr(argument, py_asked.items);
    if (fields->items == NULL) {
        return false;
    }
    if (!PyUnicode_Check(fields->kind) || !PyUnicode_Check(fields->dtype) || !PyTuple_Check(fields->items)) {
        PyErr_SetString(PyExc_TypeError, "expected an Argument");
        return false;
    }
    return true;
}

/* Returns the dtype of a pointer or descriptor by name; NJ_DTYPE_COUNT, which matches no type, for an unknown name. */
static uint8_t dtype_of(PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL) {
        PyErr_Clear();
        return NJ_DTYPE_COUNT;
    }
    return *text == '\0' ? NJ_DTYPE_NONE : (uint8_t)nj_dtype_parse(text);
}

static int read_descriptor(const argument_fields *fields, py_read_arguments *into, nj_value *value)
{
    if (into->descriptor_count == NJ_DESCRIPTORS_MAX) {
        PyErr_Format(PyExc_ValueError, NJ_DESCRIPTORS_RULE, NJ_DESCRIPTORS_MAX);
        return -1;
    }
    nj_descriptor *descriptor = &into->descriptors[into->descriptor_count];
    *descriptor = (nj_descriptor){.base = {.tag = NJ_TAG_POINTER, .dtype = dtype_of(fields->dtype)}};
    Py_ssize_t rank = PyTuple_Check(fields->value) ? PyTuple_GET_SIZE(fields->value) : 0;
    for (Py_ssize_t i = 0; i < rank && rank <= NJ_DESCRIPTOR_RANK_MAX; i++) {
        unsigned long size = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(fields->value, i));
        if (size == (unsigned long)-1 && PyErr_Occurred()) {
            return -1;
        }
        descriptor->block[i] = size > UINT32_MAX ? UINT32_MAX : (uint32_t)size;
    }
    descriptor->rank = rank <= NJ_DESCRIPTOR_RANK_MAX ? (uint8_t)rank : 0;
    *value = (nj_value){.tag = NJ_TAG_DESCRIPTOR, .bits = into->descriptor_count++};
    return 0;
}

static int read_tuple(const argument_fields *fields, const nj_ids *ids, py_read_arguments *into, nj_value *value)
{
    uint16_t start = into->leaf_count;
    Py_ssize_t count = PyTuple_GET_SIZE(fields->items);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (into->leaf_count == NJ_LEAVES_MAX) {
            PyErr_Format(PyExc_ValueError, NJ_LEAVES_RULE, NJ_LEAVES_MAX);
            return -1;
        }
        nj_value *leaf = &into->leaves[into->leaf_count++];
        if (py_argument_read(PyTuple_GET_ITEM(fields->items, i), ids, into, leaf) < 0) {
            return -1;
        }
    }
    *value = (nj_value){.tag = NJ_TAG_TUPLE, .bits = nj_tuple(start, (uint16_t)(into->leaf_count - start), (uint16_t)count)};
    return 0;
}

static int read_constant(const argument_fields *fields, const nj_ids *ids, nj_value *value)
{
    py_pile *pile = NULL;
    nj_constant constant;
    int status = py_constant_from(fields->value, &pile, &constant);
    *value = (nj_value){.tag = NJ_TAG_UNKNOWN, .bits = NJ_UNKNOWN_CONSTANT};
    if (status == 0 && constant.kind != PY_CONSTANT_FOREIGN) {
        nj_value found = nj_ids_find(ids, &constant);
        if (nj_is_id(&found)) {
            *value = (nj_value){.tag = NJ_TAG_CONSTANT, .bits = found.bits};
        }
    }
    py_pile_free(pile);
    return status;
}

static int read_fields(const argument_fields *fields, const nj_ids *ids, py_read_arguments *into, nj_value *value)
{
    const char *kind = PyUnicode_AsUTF8(fields->kind);
    *value = (nj_value){.tag = NJ_TAG_NONE};
    if (kind == NULL) {
        return -1;
    }
    if (strcmp(kind, "none") == 0) {
        return 0;
    }
    if (strcmp(kind, "tuple") == 0) {
        return read_tuple(fields, ids, into, value);
    }
    if (strcmp(kind, "descriptor") == 0) {
        return read_descriptor(fields, into, value);
    }
    if (strcmp(kind, "constant") == 0) {
        return read_constant(fields, ids, value);
    }
    if (strcmp(kind, "pointer") == 0 && PyLong_Check(fields->value)) {
        *value = (nj_value){.tag = NJ_TAG_POINTER, .dtype = dtype_of(fields->dtype), .bits = (int64_t)PyLong_AsUnsignedLongLongMask(fields->value)};
    } else if (strcmp(kind, "int") == 0 && PyLong_Check(fields->value)) {
        py_read_int(fields->value, value);
    } else if (strcmp(kind, "bool") == 0) {
        *value = (nj_value){.tag = NJ_TAG_BOOL, .bits = PyObject_IsTrue(fields->value)};
    } else if (strcmp(kind, "float") == 0 && PyFloat_Check(fields->value)) {
        *value = (nj_value){.tag = NJ_TAG_OPAQUE, .bits = nj_double_bits(PyFloat_AS_DOUBLE(fields->value))};
    } else {
        *value = (nj_value){.tag = NJ_TAG_UNKNOWN, .bits = NJ_UNKNOWN_OTHER};
    }
    return PyErr_Occurred() ? -1 : 0;
}

int py_argument_read(PyObject *argument, const nj_ids *ids, py_read_arguments *into, nj_value *value)
{
    argument_fields fields = {0};
    int status = -1;
    if (take_fields(argument, &fields) && !Py_EnterRecursiveCall(" in the tuples of an argument")) {
        status = read_fields(&fields, ids, into, value);
        Py_LeaveRecursiveCall();
    }
    clear_fields(&fields);
    return status;
}

/* An argument and the types of its param. */
typedef struct {
    nj_ids *ids;
    nj_param_types param;
    py_read_arguments read;
    nj_value value;
} judged;

static bool read_types(PyObject *types, judged *it)
{
    Py_ssize_t count = PyTuple_GET_SIZE(types);
    nj_span spelled[NJ_TYPES_MAX];
    nj_error error;
    if (count > NJ_TYPES_MAX) {
        PyErr_Format(PyExc_ValueError, "expected at most %d types of one param, got %zd", NJ_TYPES_MAX, count);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!py_borrow_text(PyTuple_GET_ITEM(types, i), &spelled[i])) {
            return false;
        }
    }
    if (!nj_param_init(&it->param, spelled, (size_t)count, it->ids, &error)) {
        py_raise(&error, Py_None);
        return false;
    }
    return true;
}

static void end_judged(judged *it)
{
    if (it != NULL) {
        nj_param_clear(&it->param);
        nj_ids_free(it->ids);
        PyMem_Free(it);
    }
}

/* Reads an argument and the types of its param; NULL with an exception raised. */
static judged *read_judged(PyObject *types, PyObject *argument)
{
    judged *it = PyMem_Calloc(1, sizeof *it);
    if (it == NULL || (it->ids = nj_ids_new()) == NULL) {
        PyErr_NoMemory();
    } else if (read_types(types, it) && py_argument_read(argument, it->ids, &it->read, &it->value) == 0) {
        return it;
    }
    end_judged(it);
    return NULL;
}

/* `takes(type, argument)`: returns whether a param of a type accepts an argument. */
static PyObject *takes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *type, *argument;
    if (!PyArg_ParseTuple(args, "UO:takes", &type, &argument)) {
        return NULL;
    }
    PyObject *types = PyTuple_Pack(1, type);
    judged *it = types == NULL ? NULL : read_judged(types, argument);
    Py_XDECREF(types);
    if (it == NULL) {
        return NULL;
    }
    const nj_arguments arguments = {it->read.values, it->read.leaves, it->read.descriptors};
    bool takes = nj_takers(&it->param, &it->value, &arguments) != 0;
    end_judged(it);
    return PyBool_FromLong(takes);
}

/* `coerced(types, argument)`: returns the (kind, value) to which Triton converts an argument of a param with these types; None if it does
 * not convert it. */
static PyObject *coerced(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *types, *argument;
    if (!PyArg_ParseTuple(args, "O!O:coerced", &PyTuple_Type, &types, &argument)) {
        return NULL;
    }
    judged *it = read_judged(types, argument);
    if (it == NULL) {
        return NULL;
    }
    const nj_arguments arguments = {it->read.values, it->read.leaves, it->read.descriptors};
    nj_value value = it->value;
    nj_coerce(&it->param, &value, &arguments);
    bool same = value.tag == it->value.tag;
    end_judged(it);
    if (same) {
        Py_RETURN_NONE;
    }
    switch (value.tag) {
    case NJ_TAG_POINTER: return Py_BuildValue("(sK)", "pointer", (unsigned long long)value.bits);
    case NJ_TAG_INT: return Py_BuildValue("(sL)", "int", (long long)value.bits);
    case NJ_TAG_BOOL: return Py_BuildValue("(sO)", "bool", value.bits ? Py_True : Py_False);
    default: return Py_BuildValue("(sd)", "float", nj_as_double(value.bits));
    }
}

/* Reads the values that variants were built with; NULL with an exception raised. */
static const nj_constant **read_known(PyObject *known, py_pile **pile)
{
    size_t count = (size_t)PyTuple_GET_SIZE(known);
    nj_constant *constants = py_pile_take(pile, count * sizeof *constants);
    const nj_constant **made = constants == NULL ? NULL : py_pile_take(pile, count * sizeof *made);
    for (size_t i = 0; made != NULL && i < count; i++) {
        made[i] = &constants[i];
        if (py_constant_from(PyTuple_GET_ITEM(known, i), pile, &constants[i]) < 0) {
            return NULL;
        }
    }
    return made;
}

/* `resolved(value, known)`: returns a constexpr value with names of dtypes replaced by the dtypes, if `known` values are dtypes only. */
static PyObject *resolved(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *value, *known, *made = NULL;
    py_pile *pile = NULL;
    nj_constant constant, resolved;
    nj_resolved_items *items = NULL;
    if (!PyArg_ParseTuple(args, "OO!:resolved", &value, &PyTuple_Type, &known)) {
        return NULL;
    }
    const nj_constant **built = read_known(known, &pile);
    if (built != NULL && py_constant_from(value, &pile, &constant) == 0) {
        if (!nj_constexpr_resolve(&constant, built, (size_t)PyTuple_GET_SIZE(known), &items, &resolved)) {
            PyErr_NoMemory();
        } else {
            made = nj_constant_same(&constant, &resolved) ? Py_NewRef(value) : py_make_one_value(&resolved);
        }
    }
    nj_resolved_free(items);
    py_pile_free(pile);
    return made;
}

static PyMethodDef functions[] = {
    {"takes", takes, METH_VARARGS, PyDoc_STR("Whether a param of a type accepts an argument.")},
    {"coerced", coerced, METH_VARARGS,
     PyDoc_STR("(kind, value) to which Triton converts an argument of a param with some types; None if it does not.")},
    {"resolved", resolved, METH_VARARGS, PyDoc_STR("A constexpr value with names of dtypes replaced by the dtypes, if all known values are dtypes.")},
    {NULL},
};

int py_add_argument_records(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
