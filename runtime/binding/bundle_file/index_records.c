#include "bundle_file/index_records.h"

#include "python/exceptions.h"
#include "python/records.h"

#include "bundle/header.h"
#include "bundle/index.h"
#include "bundle/json.h"
#include "bundle/target.h"
#include "bundle/text.h"
#include "table/cost.h"
#include "table/table.h"
#include "table/type_name.h"

enum { INDEX_FIELDS = 8, TARGET_FIELDS = 4, ENTRY_FIELDS = 6, SECTION_FIELDS = 3, ATTACHMENT_FIELDS = 2 };

typedef struct {
    nj_record index, target, entry, section, attachment;
} py_records;

static nj_span span_of(const Py_buffer *buffer)
{
    return (nj_span){buffer->buf, (size_t)buffer->len};
}

static PyObject *text_of(nj_span utf8)
{
    return PyUnicode_DecodeUTF8((const char *)utf8.at, (Py_ssize_t)utf8.size, NULL);
}

static PyObject *number_of(uint64_t number)
{
    return PyLong_FromUnsignedLongLong(number);
}

static PyObject *target_of(const py_records *records, const nj_index *index)
{
    PyObject *values[TARGET_FIELDS] = {text_of(index->backend), text_of(index->arch), text_of(index->image_arch),
                                       number_of(index->warp_size)};
    return py_record_make(&records->target, values);
}

static PyObject *toolchain_of(const nj_index *index)
{
    PyObject *tools = PyTuple_New((Py_ssize_t)index->tool_count);
    for (size_t i = 0; tools != NULL && i < index->tool_count; i++) {
        PyObject *pair = Py_BuildValue("(NN)", text_of(index->tools[i].name), text_of(index->tools[i].version));
        if (pair == NULL) {
            Py_CLEAR(tools);
            break;
        }
        PyTuple_SET_ITEM(tools, (Py_ssize_t)i, pair);
    }
    return tools;
}

static PyObject *section_of(const py_records *records, const nj_stored_section *section)
{
    PyObject *values[SECTION_FIELDS] = {number_of(section->stored_bytes), number_of(section->raw_bytes), text_of(section->sha256)};
    return py_record_make(&records->section, values);
}

static PyObject *entry_of(const py_records *records, const nj_kernel_entry *kernel)
{
    PyObject *values[ENTRY_FIELDS] = {text_of(kernel->name),     number_of(kernel->variants),      number_of(kernel->images),
                                      number_of(kernel->groups), number_of(kernel->payload_bytes), section_of(records, &kernel->section)};
    return py_record_make(&records->entry, values);
}

static PyObject *kernels_of(const py_records *records, const nj_index *index)
{
    PyObject *kernels = PyTuple_New((Py_ssize_t)index->kernel_count);
    for (size_t i = 0; kernels != NULL && i < index->kernel_count; i++) {
        PyObject *entry = entry_of(records, &index->kernels[i]);
        if (entry == NULL) {
            Py_CLEAR(kernels);
            break;
        }
        PyTuple_SET_ITEM(kernels, (Py_ssize_t)i, entry);
    }
    return kernels;
}

static PyObject *attachment_of(const py_records *records, const nj_attachment_entry *attachment)
{
    PyObject *values[ATTACHMENT_FIELDS] = {text_of(attachment->name), section_of(records, &attachment->section)};
    return py_record_make(&records->attachment, values);
}

static PyObject *attachments_of(const py_records *records, const nj_index *index)
{
    PyObject *attachments = PyTuple_New((Py_ssize_t)index->attachment_count);
    for (size_t i = 0; attachments != NULL && i < index->attachment_count; i++) {
        PyObject *attachment = attachment_of(records, &index->attachments[i]);
        if (attachment == NULL) {
            Py_CLEAR(attachments);
            break;
        }
        PyTuple_SET_ITEM(attachments, (Py_ssize_t)i, attachment);
    }
    return attachments;
}

static PyObject *record_of(const py_records *records, const nj_index *index)
{
    PyObject *values[INDEX_FIELDS] = {text_of(index->name),         text_of(index->version),      target_of(records, index),
                                      toolchain_of(index),          number_of(index->min_driver), text_of(index->inputs),
                                      kernels_of(records, index),   attachments_of(records, index)};
    return py_record_make(&records->index, values);
}

PyObject *py_index_record(const nj_index *index, PyObject *classes)
{
    PyObject *of_index, *target, *entry, *section, *attachment, *record = NULL;
    py_records records = {0};
    if (!PyArg_ParseTuple(classes, "OOOOO:classes of records", &of_index, &target, &entry, &section, &attachment)) {
        return NULL;
    }
    if (py_record_of(of_index, INDEX_FIELDS, &records.index) == 0 && py_record_of(target, TARGET_FIELDS, &records.target) == 0 &&
        py_record_of(entry, ENTRY_FIELDS, &records.entry) == 0 && py_record_of(section, SECTION_FIELDS, &records.section) == 0 &&
        py_record_of(attachment, ATTACHMENT_FIELDS, &records.attachment) == 0) {
        record = record_of(&records, index);
    }
    py_record_clear(&records.index);
    py_record_clear(&records.target);
    py_record_clear(&records.entry);
    py_record_clear(&records.section);
    py_record_clear(&records.attachment);
    return record;
}

PyObject *py_read_index(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer raw;
    PyObject *where, *classes;
    nj_index index;
    nj_error error;
    if (!PyArg_ParseTuple(args, "y*OO!:read_index", &raw, &where, &PyTuple_Type, &classes)) {
        return NULL;
    }
    PyObject *record = nj_index_read(span_of(&raw), &index, &error) ? py_index_record(&index, classes) : py_raise(&error, where);
    nj_index_close(&index);
    PyBuffer_Release(&raw);
    return record;
}

PyObject *py_check_json_of(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer raw;
    PyObject *where;
    nj_error error;
    if (!PyArg_ParseTuple(args, "y*O:check_json", &raw, &where)) {
        return NULL;
    }
    PyObject *checked = nj_check_json(span_of(&raw), &error) ? Py_NewRef(Py_None) : py_raise(&error, where);
    PyBuffer_Release(&raw);
    return checked;
}

/* Asks a rule about a text; surrogates, which UTF-8 has none of, are part of what it sees. */
static PyObject *ask(PyObject *text, bool (*rule)(nj_span utf8))
{
    PyObject *utf8 = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
    if (utf8 == NULL) {
        return NULL;
    }
    nj_span span = {(const unsigned char *)PyBytes_AS_STRING(utf8), (size_t)PyBytes_GET_SIZE(utf8)};
    PyObject *answer = PyBool_FromLong(rule(span));
    Py_DECREF(utf8);
    return answer;
}

PyObject *py_is_printable_of(PyObject *Py_UNUSED(module), PyObject *text)
{
    return ask(text, nj_is_printable);
}

PyObject *py_is_name_of(PyObject *Py_UNUSED(module), PyObject *text)
{
    return ask(text, nj_is_name);
}

int py_limits_init(PyObject *module)
{
    static const struct {
        const char *name;
        long long value;
    } limits[] = {
        {"HEADER_BYTES", NJ_HEADER_BYTES},
        {"FORMAT_VERSION", NJ_FORMAT_VERSION},
        {"GFX_FIRST", NJ_GFX_FIRST},
        {"INDEX_BYTES_MAX", NJ_INDEX_BYTES_MAX},
        {"SECTION_BYTES_MAX", NJ_SECTION_BYTES_MAX},
        {"ATTACHMENT_BYTES_MAX", NJ_ATTACHMENT_BYTES_MAX},
        {"GROUP_BYTES_MAX", NJ_GROUP_BYTES_MAX},
        {"IMAGE_BYTES_MAX", NJ_IMAGE_BYTES_MAX},
        {"ATTACHMENTS_MAX", NJ_ATTACHMENTS_MAX},
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
        {"LEAVES_MAX", NJ_TYPE_LEAVES_MAX},
        {"RANK_MAX", NJ_TYPE_RANK_MAX},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (PyModule_AddIntConstant(module, limits[i].name, (long)limits[i].value) < 0) {
            return -1;
        }
    }
    return 0;
}
