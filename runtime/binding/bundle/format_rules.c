/* Gives Python the rules and limits of the bundle format. */
#include "module.h"
#include "python/at_import.h"
#include "python/exceptions.h"
#include "python/utf8.h"

#include "base/arch.h"
#include "bundle/header.h"
#include "bundle/index.h"
#include "bundle/placement.h"
#include "json/json.h"
#include "json/limits.h"
#include "json/text.h"
#include "table/cost.h"
#include "table/launch_facts.h"
#include "table/table.h"
#include "table/type_name.h"

/* `check_json(raw, where)`: checks that bytes are canonical JSON. Raises BundleFormatError. */
static PyObject *check_json(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer raw;
    PyObject *where;
    nj_error error;
    if (!PyArg_ParseTuple(args, "y*O:check_json", &raw, &where)) {
        return NULL;
    }
    PyObject *checked = nj_check_json(py_buffer_span(&raw), &error) ? Py_NewRef(Py_None) : py_raise(&error, where);
    PyBuffer_Release(&raw);
    return checked;
}

/* Checks a rule of the engine for a text. The text may contain surrogates, which are encoded as well. */
static PyObject *ask(PyObject *text, bool (*rule)(nj_span utf8))
{
    PyObject *utf8 = py_encode_text(text);
    PyObject *answer = utf8 == NULL ? NULL : PyBool_FromLong(rule(py_span(utf8)));
    Py_XDECREF(utf8);
    return answer;
}

/* `is_printable(text)`: returns whether a text is safe to show. */
static PyObject *is_printable(PyObject *Py_UNUSED(module), PyObject *text)
{
    return ask(text, nj_is_printable);
}

/* `is_name(text)`: returns whether a text is a name of the format. */
static PyObject *is_name(PyObject *Py_UNUSED(module), PyObject *text)
{
    return ask(text, nj_is_name);
}

/* `check_section(stored_bytes, raw_bytes, where)`: checks the size of a kernel's section against the limits of decompression. */
static PyObject *check_section(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long stored_bytes, raw_bytes;
    PyObject *where;
    nj_error error;
    if (!PyArg_ParseTuple(args, "KKO:check_section", &stored_bytes, &raw_bytes, &where)) {
        return NULL;
    }
    return nj_section_check(stored_bytes, raw_bytes, &error) ? Py_NewRef(Py_None) : py_raise(&error, where);
}

/* `split_section(raw, images, groups, where)`: returns (bytes of the variant table, bytes of the placement) of a section. */
static PyObject *split_section(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer raw;
    unsigned long long images, groups;
    PyObject *where, *parts;
    nj_span table, placement;
    nj_error error;
    if (!PyArg_ParseTuple(args, "y*KKO:split_section", &raw, &images, &groups, &where)) {
        return NULL;
    }
    parts = nj_section_split(py_buffer_span(&raw), images, groups, &table, &placement, &error)
                ? Py_BuildValue("(NN)", py_bytes(table), py_bytes(placement))
                : py_raise(&error, where);
    PyBuffer_Release(&raw);
    return parts;
}

static PyMethodDef functions[] = {
    {"check_json", check_json, METH_VARARGS, PyDoc_STR("Check that bytes are canonical JSON.")},
    {"is_printable", is_printable, METH_O, PyDoc_STR("Whether a text is safe to show.")},
    {"is_name", is_name, METH_O, PyDoc_STR("Whether a text is a name of the format, and never a path.")},
    {"check_section", check_section, METH_VARARGS, PyDoc_STR("Check the size of a section against the limits of decompression.")},
    {"split_section", split_section, METH_VARARGS, PyDoc_STR("The variant table of a section, and the bytes of its placement.")},
    {NULL},
};

int py_add_format_rules(PyObject *module)
{
    static const py_number limits[] = {
        {"HEADER_BYTES", NJ_HEADER_BYTES},
        {"FORMAT_VERSION", NJ_FORMAT_VERSION},
        {"GFX_FIRST", NJ_GFX_FIRST},
        {"INDEX_BYTES_MAX", NJ_INDEX_BYTES_MAX},
        {"SECTION_BYTES_MAX", NJ_SECTION_BYTES_MAX},
        {"ATTACHMENT_BYTES_MAX", NJ_ATTACHMENT_BYTES_MAX},
        {"GROUP_BYTES_MAX", NJ_GROUP_BYTES_MAX},
        {"IMAGE_BYTES_MAX", NJ_IMAGE_BYTES_MAX},
        {"ATTACHMENTS_MAX", NJ_ATTACHMENTS_MAX},
        {"STATEMENT_BYTES_MAX", NJ_STATEMENT_BYTES_MAX},
        {"KERNELS_MAX", NJ_KERNELS_MAX},
        {"VARIANTS_MAX", NJ_VARIANTS_MAX},
        {"FREE_BYTES", NJ_FREE_BYTES},
        {"SECTION_RATIO_MAX", NJ_SECTION_RATIO_MAX},
        {"PAYLOAD_RATIO_MAX", NJ_PAYLOAD_RATIO_MAX},
        {"ATTACHMENT_RATIO_MAX", NJ_ATTACHMENT_RATIO_MAX},
        {"WINDOW_LOG_MAX", NJ_WINDOW_LOG_MAX},
        {"JSON_BYTES_MAX", NJ_JSON_BYTES_MAX},
        {"JSON_COMMAS_MAX", NJ_JSON_COMMAS_MAX},
        {"JSON_DIGITS_MAX", NJ_JSON_DIGITS_MAX},
        {"TEXT_CHARS_MAX", NJ_TEXT_MAX},
        {"TUNING_KEYS_MAX", NJ_TUNING_KEYS_MAX},
        {"COSTS_MAX", NJ_COSTS_MAX},
        {"BEHIND_MAX", NJ_BEHIND_MAX},
        {"LEAVES_MAX", NJ_LEAVES_MAX},
        {"RANK_MAX", NJ_DESCRIPTOR_RANK_MAX},
        {"TYPE_DEPTH_MAX", NJ_TUPLE_DEPTH_MAX},
        {NULL},
    };
    static const py_named_text texts[] = {
        {"GLOBAL_SCRATCH", NJ_GLOBAL_SCRATCH},
        {"PROFILE_SCRATCH", NJ_PROFILE_SCRATCH},
        {"SUFFIX", NJ_SUFFIX},
        {"STATEMENT_SUFFIX", NJ_STATEMENT_SUFFIX},
        {NULL},
    };
    bool added = PyModule_AddFunctions(module, functions) == 0 && py_add_numbers(module, limits) == 0 && py_add_texts(module, texts) == 0;
    return added ? py_add_object(module, "MAGIC", PyBytes_FromStringAndSize(NJ_MAGIC, sizeof NJ_MAGIC - 1)) : -1;
}
