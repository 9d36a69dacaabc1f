#include "values/type_spellings.h"

#include "variant_table/table_records.h"

#include "launch/row.h"
#include "table/type_name.h"

/* The UTF-8 of a text, which may hold surrogates: those are part of no type. NULL with an exception raised. */
static PyObject *utf8_of(PyObject *text)
{
    if (!PyUnicode_Check(text)) {
        return PyErr_Format(PyExc_TypeError, "expected a str, got %.100s", Py_TYPE(text)->tp_name);
    }
    return PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
}

static nj_span span_of(PyObject *utf8)
{
    return (nj_span){(const unsigned char *)PyBytes_AS_STRING(utf8), (size_t)PyBytes_GET_SIZE(utf8)};
}

static PyObject *text_of(nj_span text)
{
    return PyUnicode_DecodeUTF8((const char *)text.at, (Py_ssize_t)text.size, "surrogatepass");
}

PyObject *py_is_type_of(PyObject *Py_UNUSED(module), PyObject *text)
{
    PyObject *utf8 = utf8_of(text);
    PyObject *answer = utf8 == NULL ? NULL : PyBool_FromLong(nj_is_type(span_of(utf8)));
    Py_XDECREF(utf8);
    return answer;
}

PyObject *py_constant_of(PyObject *Py_UNUSED(module), PyObject *type)
{
    PyObject *utf8 = utf8_of(type), *made = NULL;
    unsigned char *decoded = utf8 == NULL ? NULL : PyMem_Malloc((size_t)PyBytes_GET_SIZE(utf8) + 1);
    nj_constant value;
    if (utf8 != NULL && decoded == NULL) {
        PyErr_NoMemory();
    } else if (utf8 != NULL && nj_is_constant_type(span_of(utf8)) && nj_type_constant(span_of(utf8), decoded, &value)) {
        made = py_constant_value(&value);
    } else if (utf8 != NULL) {
        PyErr_Format(PyExc_ValueError, "expected a constant in canonical spelling, got %R", type);
    }
    PyMem_Free(decoded);
    Py_XDECREF(utf8);
    return made;
}

static bool add_leaf(void *context, nj_span path, nj_span type)
{
    PyObject *leaf = Py_BuildValue("(NN)", text_of(path), text_of(type));
    bool added = leaf != NULL && PyList_Append(context, leaf) == 0;
    Py_XDECREF(leaf);
    return added;
}

PyObject *py_leaves_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *type, *path;
    if (!PyArg_ParseTuple(args, "UU:leaves", &type, &path)) {
        return NULL;
    }
    PyObject *kind = utf8_of(type), *name = kind == NULL ? NULL : utf8_of(path), *list = name == NULL ? NULL : PyList_New(0);
    bool walked = list != NULL && nj_walk_leaves(span_of(kind), span_of(name), add_leaf, list);
    if (list != NULL && !walked && !PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "expected a path of at most %d bytes, got %R", NJ_PATH_BYTES_MAX, path);
    }
    PyObject *leaves = walked ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    Py_XDECREF(name);
    Py_XDECREF(kind);
    return leaves;
}

PyObject *py_members_of(PyObject *Py_UNUSED(module), PyObject *type)
{
    PyObject *utf8 = utf8_of(type), *list = utf8 == NULL ? NULL : PyList_New(0);
    nj_span all = utf8 == NULL ? (nj_span){0} : span_of(utf8), member;
    nj_span rest = all.size < 2 ? (nj_span){0} : (nj_span){all.at + 1, all.size - 2};
    while (list != NULL && nj_next_member(&rest, &member)) {
        PyObject *text = text_of(member);
        if (text == NULL || PyList_Append(list, text) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(text);
    }
    Py_XDECREF(utf8);
    return list;
}

static PyObject *block_of(const nj_descriptor_name *parts)
{
    PyObject *block = PyTuple_New((Py_ssize_t)parts->rank);
    for (uint32_t i = 0; block != NULL && i < parts->rank; i++) {
        PyObject *number = PyLong_FromUnsignedLong(parts->block[i]);
        if (number == NULL) {
            Py_CLEAR(block);
            break;
        }
        PyTuple_SET_ITEM(block, (Py_ssize_t)i, number);
    }
    return block;
}

PyObject *py_descriptor_parts_of(PyObject *Py_UNUSED(module), PyObject *type)
{
    PyObject *utf8 = utf8_of(type), *made = NULL;
    if (utf8 != NULL && nj_is_descriptor_name(span_of(utf8)) && nj_is_type(span_of(utf8))) {
        nj_descriptor_name parts = nj_descriptor_parts(span_of(utf8));
        made = Py_BuildValue("(NN)", text_of(parts.element), block_of(&parts));
    } else if (utf8 != NULL) {
        PyErr_Format(PyExc_ValueError, "expected the type of a descriptor, such as tensordesc<fp16[128,64]>, got %R", type);
    }
    Py_XDECREF(utf8);
    return made;
}

PyObject *py_param_bytes_of(PyObject *Py_UNUSED(module), PyObject *type)
{
    uint8_t dtype;
    PyObject *utf8 = utf8_of(type);
    PyObject *bytes = utf8 == NULL ? NULL : PyLong_FromUnsignedLong(nj_param_bytes(span_of(utf8), &dtype));
    Py_XDECREF(utf8);
    return bytes;
}

/* Reads the dtype that a text names: 1, 0 if it names none, -1 with an exception raised. */
static int read_dtype(PyObject *text, const nj_dtype_facts **facts)
{
    PyObject *utf8 = utf8_of(text);
    nj_dtype dtype = utf8 == NULL ? NJ_DTYPE_COUNT : nj_dtype_read(span_of(utf8));
    Py_XDECREF(utf8);
    *facts = &nj_dtypes[dtype];
    return utf8 == NULL ? -1 : dtype != NJ_DTYPE_COUNT;
}

PyObject *py_element_name_of(PyObject *Py_UNUSED(module), PyObject *text)
{
    const nj_dtype_facts *facts;
    int known = read_dtype(text, &facts);
    return known < 0 ? NULL : known == 0 ? Py_NewRef(Py_None) : PyUnicode_FromString(facts->name);
}

PyObject *py_dtype_name_of(PyObject *Py_UNUSED(module), PyObject *text)
{
    const nj_dtype_facts *facts;
    int known = read_dtype(text, &facts);
    return known < 0 ? NULL : known == 0 ? Py_NewRef(Py_None) : PyUnicode_FromString(facts->constexpr_name);
}

PyObject *py_dtype_words(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    PyObject *words = PyList_New(0);
    const char *word;
    for (size_t i = 0; words != NULL && (word = nj_dtype_word(i)) != NULL; i++) {
        PyObject *text = *word == '\0' ? Py_NewRef(Py_None) : PyUnicode_FromString(word);
        if (text == NULL || (text != Py_None && PyList_Append(words, text) < 0)) {
            Py_CLEAR(words);
        }
        Py_XDECREF(text);
    }
    return words;
}

PyObject *py_dtypes_of(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    static const char *const kinds[] = {
        [NJ_OF_BOOLS] = "bool", [NJ_OF_INTS] = "int", [NJ_OF_UINTS] = "int", [NJ_OF_FLOATS] = "float"};
    PyObject *all = PyTuple_New(NJ_DTYPE_COUNT - NJ_DTYPE_I1);
    for (Py_ssize_t i = 0; all != NULL && i < PyTuple_GET_SIZE(all); i++) {
        const nj_dtype_facts *facts = &nj_dtypes[NJ_DTYPE_I1 + i];
        PyObject *one = Py_BuildValue("(ssiO)", facts->name, kinds[facts->kind], facts->bytes, facts->is_scalar ? Py_True : Py_False);
        if (one == NULL) {
            Py_CLEAR(all);
            break;
        }
        PyTuple_SET_ITEM(all, i, one);
    }
    return all;
}
