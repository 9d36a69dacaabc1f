#include "bundle_file/image_checks.h"

#include "python/exceptions.h"

#include "image/cubin.h"
#include "image/entry.h"

static PyObject *bytes_of(nj_span span)
{
    return PyBytes_FromStringAndSize((const char *)span.at, (Py_ssize_t)span.size);
}

/* Raises what the engine found in an image that nobody has named. */
static PyObject *raise_unnamed(const nj_error *error)
{
    PyObject *where = PyUnicode_FromString("the image");
    if (where != NULL) {
        py_raise(error, where);
        Py_DECREF(where);
    }
    return NULL;
}

static uint32_t clamp(long long number)
{
    /* more than any device takes, and less than what 32 bits of threads hold */
    return number < 0 ? 0 : number > 1 << 20 ? 1 << 20 : (uint32_t)number;
}

static int read_sizes(PyObject *sizes, nj_entry *entry)
{
    entry->param_count = (size_t)PyTuple_GET_SIZE(sizes);
    for (size_t i = 0; i < entry->param_count && i < NJ_IMAGE_PARAMS_MAX; i++) {
        long size = PyLong_AsLong(PyTuple_GET_ITEM(sizes, (Py_ssize_t)i));
        if (size == -1 && PyErr_Occurred()) {
            return -1;
        }
        entry->sizes[i] = size < 0 || size > UINT16_MAX ? 0 : (uint32_t)size;
    }
    return 0;
}

static PyObject *params_of(const nj_image_kernel *kernel)
{
    PyObject *list = PyList_New((Py_ssize_t)kernel->param_count);
    for (size_t i = 0; list != NULL && i < kernel->param_count; i++) {
        PyObject *pair = Py_BuildValue("(ii)", kernel->params[i].offset, kernel->params[i].size);
        if (pair == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, pair);
    }
    return list;
}

static PyObject *facts_of(const nj_entry_facts *facts)
{
    PyObject *params = params_of(&facts->kernel);
    return params == NULL ? NULL : Py_BuildValue("(NII)", params, facts->own_shared_bytes, facts->kernel.registers);
}

PyObject *py_read_entry(PyObject *facts, nj_entry *entry)
{
    PyObject *symbol, *sizes;
    long long warps, ctas;
    int arch_specific;
    if (!PyArg_ParseTuple(facts, "UO!LLIp:entry", &symbol, &PyTuple_Type, &sizes, &warps, &ctas, &entry->arch, &arch_specific) ||
        read_sizes(sizes, entry) < 0) {
        return NULL;
    }
    PyObject *name = PyUnicode_AsEncodedString(symbol, "utf-8", "backslashreplace");
    if (name != NULL) {
        entry->symbol = (nj_span){(const unsigned char *)PyBytes_AS_STRING(name), (size_t)PyBytes_GET_SIZE(name)};
    }
    entry->num_warps = clamp(warps);
    entry->num_ctas = clamp(ctas);
    entry->arch_specific = arch_specific;
    return name;
}

PyObject *py_check_image(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer image;
    PyObject *told = NULL, *where, *unread;
    nj_entry entry;
    if (!PyArg_ParseTuple(args, "y*OOOOOOO:check_image", &image, &unread, &unread, &unread, &unread, &unread, &unread, &where)) {
        return NULL;
    }
    nj_entry_facts facts;
    nj_error error;
    PyObject *asked = PyTuple_GetSlice(args, 1, 7), *name = asked == NULL ? NULL : py_read_entry(asked, &entry);
    if (name != NULL) {
        bool good = nj_entry_check((nj_span){image.buf, (size_t)image.len}, &entry, &facts, &error);
        told = good ? facts_of(&facts) : py_raise(&error, where);
    }
    Py_XDECREF(name);
    Py_XDECREF(asked);
    PyBuffer_Release(&image);
    return told;
}

static PyObject *declared(const nj_declared *it)
{
    return it->declared ? Py_BuildValue("(III)", it->xyz[0], it->xyz[1], it->xyz[2]) : Py_NewRef(Py_None);
}

static PyObject *kernel_of(const nj_cubin *cubin, const nj_image_kernel *it)
{
    PyObject *params = params_of(it);
    PyObject *pairs = params == NULL ? NULL : PyList_AsTuple(params);
    Py_XDECREF(params);
    return pairs == NULL ? NULL
                         : Py_BuildValue("(s#NINNNIIKKI)", (const char *)it->symbol.at, (Py_ssize_t)it->symbol.size, pairs, it->param_base,
                                         declared(&it->block), declared(&it->largest_block), declared(&it->cluster), it->registers,
                                         it->stack_bytes, (unsigned long long)it->static_shared_bytes,
                                         (unsigned long long)it->text_bytes, nj_cubin_own_shared(cubin, it));
}

static PyObject *kernels_of(nj_cubin *cubin, nj_error *error)
{
    PyObject *kernels = PyTuple_New((Py_ssize_t)cubin->kernel_count);
    nj_image_kernel kernel;
    for (size_t i = 0; kernels != NULL && i < cubin->kernel_count; i++) {
        PyObject *told = nj_cubin_kernel_read(cubin, i, &kernel, error) ? kernel_of(cubin, &kernel) : raise_unnamed(error);
        if (told == NULL) {
            Py_CLEAR(kernels);
            break;
        }
        PyTuple_SET_ITEM(kernels, (Py_ssize_t)i, told);
    }
    return kernels;
}

PyObject *py_read_cubin(PyObject *Py_UNUSED(module), PyObject *image)
{
    Py_buffer bytes;
    nj_cubin cubin;
    nj_error error;
    PyObject *told = NULL, *kernels;
    if (PyObject_GetBuffer(image, &bytes, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (!nj_cubin_read((nj_span){bytes.buf, (size_t)bytes.len}, &cubin, &error)) {
        raise_unnamed(&error);
    } else if ((kernels = kernels_of(&cubin, &error)) != NULL) {
        told = Py_BuildValue("(NINiIN)", kernels, cubin.sm, PyBool_FromLong(cubin.arch_specific), cubin.elf.abi, cubin.toolkit,
                             PyBool_FromLong(nj_cubin_has_debug(&cubin)));
    }
    PyBuffer_Release(&bytes);
    return told;
}

PyObject *py_read_sections(PyObject *Py_UNUSED(module), PyObject *image)
{
    Py_buffer bytes;
    nj_elf elf;
    nj_error error;
    PyObject *told = NULL;
    if (PyObject_GetBuffer(image, &bytes, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    nj_span whole = {bytes.buf, (size_t)bytes.len};
    if (!nj_elf_read(whole, nj_elf_kind_of(whole), &elf, &error)) {
        raise_unnamed(&error);
    } else if ((told = PyList_New((Py_ssize_t)elf.section_count)) != NULL) {
        for (size_t i = 0; i < elf.section_count; i++) {
            PyObject *pair = Py_BuildValue("(NN)", bytes_of(elf.sections[i].name), bytes_of(elf.sections[i].content));
            if (pair == NULL) {
                Py_CLEAR(told);
                break;
            }
            PyList_SET_ITEM(told, (Py_ssize_t)i, pair);
        }
    }
    PyBuffer_Release(&bytes);
    return told;
}
