#include "bundle/decompress.h"

#include "module.h"
#include "python/callbacks.h"
#include "python/exceptions.h"
#include "python/utf8.h"

#include "bundle/frame.h"
#include "bundle/reader.h"
#include "bundle/zstd.h"

/* Converts a BundleError, which says that no decompressor is installed, to the engine's error. */
static void note_lack(PyObject *raised, nj_error *error)
{
    PyObject *what = PyObject_GetAttr(raised, py_asked.what), *got = PyObject_GetAttr(raised, py_asked.got);
    const char *expected = what == NULL ? NULL : PyUnicode_AsUTF8(what), *found = got == NULL ? NULL : PyUnicode_AsUTF8(got);
    if (expected != NULL && found != NULL) {
        nj_note_lack(error, found, "%s", expected);
    }
    Py_XDECREF(what);
    Py_XDECREF(got);
}

static void note_broken(PyObject *raised, nj_error *error)
{
    PyObject *text = PyObject_Str(raised);
    const char *said = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    if (said != NULL) {
        nj_frame_broken(error, said);
    }
    Py_XDECREF(text);
}

/* Converts the pending ValueError of a decompressor, which means a broken frame, to the engine's error. Any other exception stays
 * pending. Returns false. */
static bool refuse_frame(nj_error *error)
{
    PyObject *type, *raised, *traceback;
    PyErr_Fetch(&type, &raised, &traceback);
    PyErr_NormalizeException(&type, &raised, &traceback);
    if (!PyErr_GivenExceptionMatches(type, PyExc_ValueError)) {
        PyErr_Restore(type, raised, traceback);
        return false;
    }
    if (py_is_bundle_error(type)) {
        note_lack(raised, error);
    } else {
        note_broken(raised, error);
    }
    Py_XDECREF(type);
    Py_XDECREF(raised);
    Py_XDECREF(traceback);
    return false;
}

/* Calls a callable with memoryviews of a frame and of the buffer for its content. NULL with an exception raised. */
static PyObject *call_with_views(PyObject *callable, nj_span frame, void *raw, size_t raw_bytes)
{
    PyObject *stored = PyMemoryView_FromMemory((char *)frame.at, (Py_ssize_t)frame.size, PyBUF_READ);
    PyObject *room = stored == NULL ? NULL : PyMemoryView_FromMemory(raw, (Py_ssize_t)raw_bytes, PyBUF_WRITE);
    PyObject *done = room == NULL ? NULL : PyObject_CallFunctionObjArgs(callable, stored, room, NULL);
    Py_XDECREF(room);
    Py_XDECREF(stored);
    return done;
}

bool py_decompress(void *context, nj_span frame, void *raw, size_t raw_bytes, nj_error *error)
{
    PyObject *callable = context;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *done = call_with_views(callable, frame, raw, raw_bytes);
    bool good = done != NULL || refuse_frame(error);
    Py_XDECREF(done);
    PyGILState_Release(state);
    return good;
}

/* `check_frame(frame, raw_bytes, where)`: checks the header of a zstd frame. Raises BundleFormatError. */
static PyObject *check_frame(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer frame;
    unsigned long long raw_bytes;
    PyObject *where;
    nj_error error;
    if (!PyArg_ParseTuple(args, "y*KO:check_frame", &frame, &raw_bytes, &where)) {
        return NULL;
    }
    PyObject *checked = nj_frame_check(py_buffer_span(&frame), raw_bytes, &error) ? Py_NewRef(Py_None) : py_raise(&error, where);
    PyBuffer_Release(&frame);
    return checked;
}

/* `read_frame(frame, raw_bytes, decompress, where)`: returns the content of a zstd frame. Calls `decompress(frame, raw)`, or libzstd if
 * `decompress` is None, to fill `raw`. Raises BundleError at `where`. */
static PyObject *read_frame(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer frame;
    Py_ssize_t raw_bytes;
    PyObject *callable, *where;
    nj_error error;
    if (!PyArg_ParseTuple(args, "y*nOO:read_frame", &frame, &raw_bytes, &callable, &where)) {
        return NULL;
    }
    nj_span stored = py_buffer_span(&frame);
    nj_reader_calls calls = {callable, callable == Py_None ? nj_zstd_decompress : py_decompress, NULL};
    /* check the size before allocating it */
    PyObject *raw = nj_frame_check(stored, (uint64_t)raw_bytes, &error) ? PyBytes_FromStringAndSize(NULL, raw_bytes)
                                                                         : py_raise(&error, where);
    if (raw != NULL && !nj_frame_read(&calls, stored, PyBytes_AS_STRING(raw), (uint64_t)raw_bytes, &error)) {
        Py_CLEAR(raw);
        if (!PyErr_Occurred()) {
            py_raise(&error, where);
        }
    }
    PyBuffer_Release(&frame);
    return raw;
}

/* `finds_zstd()`: returns whether libzstd.so.1 can be loaded to read frames. */
static PyObject *finds_zstd(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyBool_FromLong(nj_zstd_find());
}

static PyMethodDef functions[] = {
    {"finds_zstd", finds_zstd, METH_NOARGS, PyDoc_STR("Whether libzstd.so.1 can be loaded to read frames.")},
    {"check_frame", check_frame, METH_VARARGS, PyDoc_STR("Check the header of a zstd frame.")},
    {"read_frame", read_frame, METH_VARARGS, PyDoc_STR("The content of a zstd frame.")},
    {NULL},
};

int py_add_decompress(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
