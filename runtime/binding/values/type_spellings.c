/* Functions that let Python read the type names of signatures (engine/table/type_name.h). */
#include "module.h"
#include "python/tuples.h"
#include "python/utf8.h"
#include "values/make_value.h"

#include "launch/row_facts.h"
#include "table/type_name.h"

/* `is_type(text)`: returns whether a text is a type in canonical spelling. */
static PyObject *is_type(PyObject *Py_UNUSED(module), PyObject *text)
{
    PyObject *utf8 = py_encode_text(text);
    PyObject *answer = utf8 == NULL ? NULL : PyBool_FromLong(nj_is_type(py_span(utf8)));
    Py_XDECREF(utf8);
    return answer;
}

/* `constant_of(type)`: returns the value of a constant's type. Raises ValueError for any other text. */
static PyObject *constant_of(PyObject *Py_UNUSED(module), PyObject *type)
{
    PyObject *utf8 = py_encode_text(type), *made = NULL;
    unsigned char *decoded = utf8 == NULL ? NULL : PyMem_Malloc((size_t)PyBytes_GET_SIZE(utf8) + 1);
    nj_constant value;
    if (utf8 != NULL && decoded == NULL) {
        PyErr_NoMemory();
    } else if (utf8 != NULL && nj_is_constant_type(py_span(utf8)) && nj_type_constant(py_span(utf8), decoded, &value)) {
        made = py_make_one_value(&value);
    } else if (utf8 != NULL) {
        PyErr_Format(PyExc_ValueError, "expected a constant in canonical spelling, got %R", type);
    }
    PyMem_Free(decoded);
    Py_XDECREF(utf8);
    return made;
}

static bool add_leaf(void *context, nj_span path, nj_span type)
{
    return py_append(context, Py_BuildValue("(NN)", py_text(path), py_text(type)));
}

/* `leaves(type, path)`: returns (path, type) of each leaf. */
static PyObject *leaves(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *type, *path;
    if (!PyArg_ParseTuple(args, "UU:leaves", &type, &path)) {
        return NULL;
    }
    PyObject *kind = py_encode_text(type), *name = kind == NULL ? NULL : py_encode_text(path), *list = name == NULL ? NULL : PyList_New(0);
    bool walked = list != NULL && nj_walk_leaves(py_span(kind), py_span(name), add_leaf, list);
    if (list != NULL && !walked && !PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "expected a path of at most %d bytes, got %R", NJ_PATH_BYTES_MAX, path);
    }
    PyObject *leaves = walked ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    Py_XDECREF(name);
    Py_XDECREF(kind);
    return leaves;
}

/* `members(type)`: returns the list of the member types of a tuple's type. */
static PyObject *members(PyObject *Py_UNUSED(module), PyObject *type)
{
    PyObject *utf8 = py_encode_text(type), *list = utf8 == NULL ? NULL : PyList_New(0);
    nj_span all = utf8 == NULL ? (nj_span){0} : py_span(utf8), member;
    nj_span rest = all.size < 2 ? (nj_span){0} : (nj_span){all.at + 1, all.size - 2};
    while (list != NULL && nj_next_member(&rest, &member)) {
        if (!py_append(list, py_text(member))) {
            Py_CLEAR(list);
        }
    }
    Py_XDECREF(utf8);
    return list;
}

/* `descriptor_parts(type)`: returns (element, block shape) of a descriptor's type. */
static PyObject *descriptor_parts(PyObject *Py_UNUSED(module), PyObject *type)
{
    PyObject *utf8 = py_encode_text(type), *made = NULL;
    if (utf8 != NULL && nj_is_descriptor_name(py_span(utf8)) && nj_is_type(py_span(utf8))) {
        nj_descriptor_name parts = nj_descriptor_parts(py_span(utf8));
        made = Py_BuildValue("(NN)", py_text(parts.element), py_tuple_of_numbers(parts.block, parts.rank));
    } else if (utf8 != NULL) {
        PyErr_Format(PyExc_ValueError, "expected the type of a descriptor, such as tensordesc<fp16[128,64]>, got %R", type);
    }
    Py_XDECREF(utf8);
    return made;
}

/* `param_bytes(type)`: returns the size of the compiled kernel's parameter; 0 for a type that is not passed as a single one. */
static PyObject *param_bytes(PyObject *Py_UNUSED(module), PyObject *type)
{
    uint8_t dtype;
    PyObject *utf8 = py_encode_text(type);
    PyObject *bytes = utf8 == NULL ? NULL : PyLong_FromUnsignedLong(nj_param_bytes(py_span(utf8), &dtype));
    Py_XDECREF(utf8);
    return bytes;
}

/* Reads the name of a dtype. Returns 1, 0 if the text is no such name, or -1 with an exception raised. */
static int read_dtype(PyObject *text, const nj_dtype_facts **facts)
{
    PyObject *utf8 = py_encode_text(text);
    nj_dtype dtype = utf8 == NULL ? NJ_DTYPE_COUNT : nj_dtype_read(py_span(utf8));
    Py_XDECREF(utf8);
    *facts = &nj_dtypes[dtype];
    return utf8 == NULL ? -1 : dtype != NJ_DTYPE_COUNT;
}

/* `element_name(text)`, `dtype_name(text)`: return the name of a dtype in types, or in Triton; None if the text names no dtype. */
static PyObject *element_name(PyObject *Py_UNUSED(module), PyObject *text)
{
    const nj_dtype_facts *facts;
    int known = read_dtype(text, &facts);
    return known < 0 ? NULL : known == 0 ? Py_NewRef(Py_None) : PyUnicode_FromString(facts->name);
}

static PyObject *dtype_name(PyObject *Py_UNUSED(module), PyObject *text)
{
    const nj_dtype_facts *facts;
    int known = read_dtype(text, &facts);
    return known < 0 ? NULL : known == 0 ? Py_NewRef(Py_None) : PyUnicode_FromString(facts->constexpr_name);
}

/* `dtype_words()`: returns every name of a dtype, without the prefix of a module. */
static PyObject *dtype_words(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    PyObject *words = PyList_New(0);
    const char *word;
    for (size_t i = 0; words != NULL && (word = nj_dtype_word(i)) != NULL; i++) {
        if (*word != '\0' && !py_append(words, PyUnicode_FromString(word))) {
            Py_CLEAR(words);
        }
    }
    return words;
}

static PyObject *dtype_fact(void *Py_UNUSED(context), const void *Py_UNUSED(items), size_t number)
{
    static const char *const kinds[] = {
        [NJ_OF_BOOLS] = "bool", [NJ_OF_INTS] = "int", [NJ_OF_UINTS] = "int", [NJ_OF_FLOATS] = "float"};
    const nj_dtype_facts *facts = &nj_dtypes[NJ_DTYPE_I1 + number];
    return Py_BuildValue("(ssiO)", facts->name, kinds[facts->kind], facts->bytes, facts->is_scalar ? Py_True : Py_False);
}

/* `dtypes()`: returns (name in types, kind, bytes, whether a scalar param can have it) of each dtype. */
static PyObject *dtypes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return py_tuple(NJ_DTYPE_COUNT - NJ_DTYPE_I1, dtype_fact, NULL, NULL);
}

/* `escaped(text)`: returns a text as escaped in the type of a constant. */
static PyObject *escaped(PyObject *Py_UNUSED(module), PyObject *text)
{
    nj_span utf8;
    if (!py_borrow_text(text, &utf8)) {
        return NULL;
    }
    char *made = PyMem_Malloc(3 * utf8.size + 1);
    PyObject *result = made == NULL ? PyErr_NoMemory() : PyUnicode_FromStringAndSize(made, (Py_ssize_t)nj_escape(utf8, made));
    PyMem_Free(made);
    return result;
}

static PyMethodDef functions[] = {
    {"is_type", is_type, METH_O, PyDoc_STR("Whether a text is a type in canonical spelling.")},
    {"constant_of", constant_of, METH_O, PyDoc_STR("The value of a constant's type.")},
    {"escaped", escaped, METH_O, PyDoc_STR("A text as escaped in the type of a constant.")},
    {"leaves", leaves, METH_VARARGS, PyDoc_STR("The path and the type of each leaf of a type.")},
    {"members", members, METH_O, PyDoc_STR("The members of a tuple's type.")},
    {"param_bytes", param_bytes, METH_O, PyDoc_STR("The size in bytes of a parameter of a type; 0 for a type that no parameter has.")},
    {"element_name", element_name, METH_O, PyDoc_STR("The name of a dtype in types; None if the text names no dtype.")},
    {"dtype_name", dtype_name, METH_O, PyDoc_STR("The name of a dtype in Triton; None if the text names no dtype.")},
    {"dtypes", dtypes, METH_NOARGS, PyDoc_STR("(name in types, kind, bytes, whether a scalar param can have it) of each dtype.")},
    {"dtype_words", dtype_words, METH_NOARGS, PyDoc_STR("Every name of a dtype, without the prefix of a module.")},
    {"descriptor_parts", descriptor_parts, METH_O, PyDoc_STR("The element and the block of a descriptor's type.")},
    {NULL},
};

int py_add_type_spellings(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
