#include "bundle/index_records.h"

#include "module.h"
#include "python/exceptions.h"
#include "python/records.h"
#include "python/tuples.h"
#include "python/utf8.h"

#include "bundle/index.h"

enum { INDEX_FIELDS = 8, TARGET_FIELDS = 4, ENTRY_FIELDS = 6, SECTION_FIELDS = 3, ATTACHMENT_FIELDS = 2 };

typedef struct {
    py_record index, target, entry, section, attachment;
} py_records;

static PyObject *number_of(uint64_t number)
{
    return PyLong_FromUnsignedLongLong(number);
}

static PyObject *target_of(const py_records *records, const nj_index *index)
{
    PyObject *values[TARGET_FIELDS] = {py_text(index->backend), py_text(index->arch), py_text(index->image_arch),
                                       number_of(index->warp_size)};
    return py_record_make(&records->target, values);
}

static PyObject *make_tool(void *Py_UNUSED(context), const void *items, size_t number)
{
    const nj_index *index = items;
    return Py_BuildValue("(NN)", py_text(index->tools[number].name), py_text(index->tools[number].version));
}

static PyObject *section_of(const py_records *records, const nj_stored_section *section)
{
    PyObject *values[SECTION_FIELDS] = {number_of(section->stored_bytes), number_of(section->raw_bytes), py_text(section->sha256)};
    return py_record_make(&records->section, values);
}

static PyObject *make_entry(void *context, const void *kernels, size_t number)
{
    const py_records *records = context;
    const nj_kernel_entry *kernel = (const nj_kernel_entry *)kernels + number;
    PyObject *values[ENTRY_FIELDS] = {py_text(kernel->name),     number_of(kernel->variants),      number_of(kernel->images),
                                      number_of(kernel->groups), number_of(kernel->payload_bytes), section_of(records, &kernel->section)};
    return py_record_make(&records->entry, values);
}

static PyObject *make_attachment(void *context, const void *attachments, size_t number)
{
    const py_records *records = context;
    const nj_attachment_entry *attachment = (const nj_attachment_entry *)attachments + number;
    PyObject *values[ATTACHMENT_FIELDS] = {py_text(attachment->name), section_of(records, &attachment->section)};
    return py_record_make(&records->attachment, values);
}

static PyObject *record_of(py_records *records, const nj_index *index)
{
    PyObject *values[INDEX_FIELDS] = {py_text(index->name),         py_text(index->version),      target_of(records, index),
                                      py_tuple(index->tool_count, make_tool, NULL, index),
                                      number_of(index->min_driver), py_text(index->inputs),
                                      py_tuple(index->kernel_count, make_entry, records, index->kernels),
                                      py_tuple(index->attachment_count, make_attachment, records, index->attachments)};
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

/* `read_index(raw, where, (BundleIndex, TargetInfo, KernelEntry, Section, Attachment))`: returns the index as a record. Raises
 * BundleFormatError. */
static PyObject *read_index(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer raw;
    PyObject *where, *classes;
    nj_index index;
    nj_error error;
    if (!PyArg_ParseTuple(args, "y*OO!:read_index", &raw, &where, &PyTuple_Type, &classes)) {
        return NULL;
    }
    PyObject *record = nj_index_read(py_buffer_span(&raw), &index, &error) ? py_index_record(&index, classes) : py_raise(&error, where);
    nj_index_close(&index);
    PyBuffer_Release(&raw);
    return record;
}

static PyMethodDef functions[] = {
    {"read_index", read_index, METH_VARARGS, PyDoc_STR("The index of a bundle as a record.")},
    {NULL},
};

int py_add_index_records(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
