/* `_core.Bundle`: an open bundle of the engine. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>

#include "bundle/decompress.h"
#include "bundle/index_records.h"
#include "bundle/py_placement.h"
#include "driver/py_function.h"
#include "module.h"
#include "python/at_import.h"
#include "python/exceptions.h"
#include "python/utf8.h"
#include "table/py_row.h"

#include "bundle/reader.h"
#include "bundle/zstd.h"

typedef struct {
    PyObject_HEAD
    PyObject *path, *decompress, *verify; /* owned; the last two may be NULL */
    bool is_open;
    nj_reader it;
} py_bundle;

static bool decompress_of(void *context, nj_span frame, void *raw, size_t raw_bytes, nj_error *error)
{
    return py_decompress(((py_bundle *)context)->decompress, frame, raw, raw_bytes, error);
}

/* A verify callback of `nj_reader_calls`. An exception that it raises stays pending. */
static bool verify(void *context, const char *digest, nj_error *Py_UNUSED(error))
{
    const py_bundle *self = context;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *allowed = PyObject_CallFunction(self->verify, "s", digest);
    Py_XDECREF(allowed);
    PyGILState_Release(state);
    return allowed != NULL;
}

/* Raises the engine's error, unless a callback has raised an exception. Returns NULL. */
static PyObject *raise_found(const py_bundle *self, const nj_error *error)
{
    return PyErr_Occurred() ? NULL : py_raise(error, self->path);
}

static int open_bundle(py_bundle *self, const char *path)
{
    /* the same audit event as os.open */
    if (PySys_Audit("open", "OOi", self->path, Py_None, O_RDONLY | O_CLOEXEC | O_NONBLOCK) < 0) {
        return -1;
    }
    nj_error error;
    nj_reader_calls calls = {self, self->decompress == NULL ? nj_zstd_decompress : decompress_of, self->verify == NULL ? NULL : verify};
    Py_BEGIN_ALLOW_THREADS
    self->is_open = nj_reader_open(&self->it, path, &calls, &error);
    Py_END_ALLOW_THREADS
    if (!self->is_open) {
        raise_found(self, &error);
    }
    return self->is_open ? 0 : -1;
}

static PyObject *bundle_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named))
{
    PyObject *path, *encoded, *callable, *verifier;
    if (!PyArg_ParseTuple(args, "UOO:Bundle", &path, &callable, &verifier) || PyUnicode_FSConverter(path, &encoded) == 0) {
        return NULL;
    }
    py_bundle *self = (py_bundle *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->path = Py_NewRef(path);
        self->decompress = callable == Py_None ? NULL : Py_NewRef(callable);
        self->verify = verifier == Py_None ? NULL : Py_NewRef(verifier);
        if (open_bundle(self, PyBytes_AS_STRING(encoded)) < 0) {
            Py_CLEAR(self);
        }
    }
    Py_DECREF(encoded);
    return (PyObject *)self;
}

static void bundle_dealloc(py_bundle *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (self->is_open) {
        nj_reader_close(&self->it);
    }
    Py_XDECREF(self->path);
    Py_XDECREF(self->decompress);
    Py_XDECREF(self->verify);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *bundle_index(py_bundle *self, PyObject *classes)
{
    return py_index_record(&self->it.index, classes);
}

/* Returns the number of a kernel or attachment by its name; -1 if there is none. */
static int find_number(const py_bundle *self, PyObject *name, int (*find)(const nj_reader *, nj_span))
{
    nj_span text;
    if (!py_borrow_text(name, &text)) {
        /* no part has a name with surrogates, or one that is no str */
        PyErr_Clear();
        return -1;
    }
    return find(&self->it, text);
}

static PyObject *bundle_find(py_bundle *self, PyObject *name)
{
    return PyLong_FromLong(find_number(self, name, nj_reader_find));
}

static PyObject *bundle_check_index(py_bundle *self, PyObject *Py_UNUSED(none))
{
    nj_error error;
    bool good;
    Py_BEGIN_ALLOW_THREADS
    good = nj_reader_check_index(&self->it, &error);
    Py_END_ALLOW_THREADS
    return good ? Py_NewRef(Py_None) : raise_found(self, &error);
}

/* Reads the number of a kernel. Returns -1 with an exception raised: IndexError if there is no such kernel. */
static Py_ssize_t kernel_of(const py_bundle *self, PyObject *number)
{
    Py_ssize_t kernel = PyNumber_AsSsize_t(number, PyExc_IndexError);
    if (kernel == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (kernel < 0 || (size_t)kernel >= self->it.index.kernel_count) {
        PyErr_Format(PyExc_IndexError, "expected a kernel below %zu, got %zd", self->it.index.kernel_count, kernel);
        return -1;
    }
    return kernel;
}

static PyObject *bundle_section(py_bundle *self, PyObject *number)
{
    nj_error error;
    nj_section_bytes section;
    Py_ssize_t kernel = kernel_of(self, number);
    bool read;
    if (kernel < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    read = nj_reader_section(&self->it, (size_t)kernel, &section, &error);
    Py_END_ALLOW_THREADS
    if (!read) {
        return raise_found(self, &error);
    }
    PyObject *parts = Py_BuildValue("(NN)", py_bytes(section.table), py_bytes(section.placement));
    free(section.raw);
    return parts;
}

static PyObject *bundle_attachment(py_bundle *self, PyObject *name)
{
    int number = find_number(self, name, nj_reader_find_attachment);
    nj_error error;
    bool read;
    if (number < 0) {
        return Py_NewRef(Py_None);
    }
    PyObject *content = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)self->it.index.attachments[number].section.raw_bytes);
    if (content == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    read = nj_reader_attachment(&self->it, (size_t)number, PyBytes_AS_STRING(content), &error);
    Py_END_ALLOW_THREADS
    if (!read) {
        raise_found(self, &error);
        Py_CLEAR(content);
    }
    return content;
}

/* Reads an image of a kernel by its number. Returns false with an exception raised. */
static bool read_image(py_bundle *self, PyObject *kernel_number, PyObject *placed, PyObject *image_number, nj_image_bytes *image)
{
    const nj_placement *placement = py_placement_of(placed);
    Py_ssize_t kernel = kernel_of(self, kernel_number), number = kernel < 0 ? -1 : py_image_number(placement, image_number);
    nj_error error;
    bool read;
    if (number < 0) {
        return false;
    }
    Py_BEGIN_ALLOW_THREADS
    read = nj_reader_image(&self->it, (size_t)kernel, placement, (size_t)number, image, &error);
    Py_END_ALLOW_THREADS
    if (!read) {
        raise_found(self, &error);
    }
    return read;
}

static PyObject *bundle_image(py_bundle *self, PyObject *args)
{
    PyObject *kernel_number, *placed, *image_number;
    nj_image_bytes image;
    if (!PyArg_ParseTuple(args, "OO!O:image", &kernel_number, py_placement_type, &placed, &image_number) ||
        !read_image(self, kernel_number, placed, image_number, &image)) {
        return NULL;
    }
    PyObject *content = py_bytes(image.content);
    nj_image_drop(&image);
    return content;
}

/* Loads the image of a row. Returns a new tuple: see `py_load_function`. */
static PyObject *bundle_load(py_bundle *self, PyObject *args)
{
    PyObject *kernel_number, *placed, *image_number, *row, *where;
    nj_image_bytes bytes;
    int device;
    if (!PyArg_ParseTuple(args, "OO!OO!iO:load", &kernel_number, py_placement_type, &placed, &image_number, py_row_type, &row, &device,
                          &where) ||
        !read_image(self, kernel_number, placed, image_number, &bytes)) {
        return NULL;
    }
    nj_image image = nj_image_of(&self->it, &bytes, &py_row_of(row)->entry);
    PyObject *loaded = py_load_function(&image, device, where);
    nj_image_drop(&bytes);
    return loaded;
}

static PyObject *bundle_read(py_bundle *self, PyObject *args)
{
    unsigned long long start;
    Py_ssize_t size;
    nj_error error;
    bool read;
    if (!PyArg_ParseTuple(args, "Kn:read", &start, &size)) {
        return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, size);
    if (bytes == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    read = nj_file_read(&self->it.file, start, (size_t)size, PyBytes_AS_STRING(bytes), &error);
    Py_END_ALLOW_THREADS
    if (!read) {
        raise_found(self, &error);
        Py_CLEAR(bytes);
    }
    return bytes;
}

static PyObject *bundle_digest(py_bundle *self, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(self->it.digest);
}

static PyObject *bundle_size(py_bundle *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(self->it.file.size);
}

static PyMethodDef bundle_methods[] = {
    {"index", (PyCFunction)bundle_index, METH_O, PyDoc_STR("The index as a record of the given classes.")},
    {"find", (PyCFunction)bundle_find, METH_O, PyDoc_STR("The number of a kernel by its name; -1 if there is none.")},
    {"check_index", (PyCFunction)bundle_check_index, METH_NOARGS, PyDoc_STR("Read the index once more and check its digest.")},
    {"section", (PyCFunction)bundle_section, METH_O, PyDoc_STR("The variant table of a kernel, and the bytes of its placement.")},
    {"attachment", (PyCFunction)bundle_attachment, METH_O, PyDoc_STR("The bytes of an attachment by its name; None if there is none.")},
    {"image", (PyCFunction)bundle_image, METH_VARARGS, PyDoc_STR("An image of a kernel by its number. IndexError if there is none.")},
    {"load", (PyCFunction)bundle_load, METH_VARARGS, PyDoc_STR("Load a row's image. Return (Function, whether this call loaded the image).")},
    {"read", (PyCFunction)bundle_read, METH_VARARGS, PyDoc_STR("read(start, size): bytes of the file, not verified.")},
    {NULL},
};

static PyGetSetDef bundle_getters[] = {
    {"digest", (getter)bundle_digest, NULL, PyDoc_STR("SHA-256 of the index, in hex."), NULL},
    {"size_bytes", (getter)bundle_size, NULL, PyDoc_STR("Length of the file."), NULL},
    {NULL},
};

static PyType_Slot bundle_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Bundle(path, decompress, verify)\n--\n\nAn open bundle. It holds the index, and reads other parts on demand.")},
    {Py_tp_new, bundle_new},
    {Py_tp_dealloc, bundle_dealloc},
    {Py_tp_methods, bundle_methods},
    {Py_tp_getset, bundle_getters},
    {0, NULL},
};

static PyType_Spec bundle_spec = {
    .name = "nojit.runtime._core.Bundle",
    .basicsize = sizeof(py_bundle),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = bundle_slots,
};

int py_add_bundle(PyObject *module)
{
    static PyTypeObject *type;
    return py_add_type(module, &bundle_spec, &type);
}
