/* Reads images, and checks them against the table that describes them. */
#include "module.h"
#include "python/exceptions.h"
#include "python/tuples.h"
#include "python/utf8.h"

#include "image/check.h"
#include "image/cubin.h"

/* Raises the engine's error for an image without a name. Returns NULL. */
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
    /* the upper limit is more than any device takes, and small enough for a 32-bit number of threads */
    return number < 0 ? 0 : number > 1 << 20 ? 1 << 20 : (uint32_t)number;
}

static int read_sizes(PyObject *sizes, nj_expected_image *entry)
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

static PyObject *make_param(void *Py_UNUSED(context), const void *kernel, size_t number)
{
    const nj_image_kernel *it = kernel;
    return Py_BuildValue("(ii)", it->params[number].offset, it->params[number].size);
}

/* Returns a tuple of (offset, size) of each param. */
static PyObject *params_of(const nj_image_kernel *kernel)
{
    return py_tuple(kernel->param_count, make_param, NULL, kernel);
}

static PyObject *facts_of(const nj_image_facts *facts)
{
    PyObject *params = params_of(&facts->kernel), *listed = params == NULL ? NULL : PySequence_List(params);
    Py_XDECREF(params);
    return listed == NULL ? NULL : Py_BuildValue("(NII)", listed, facts->own_shared_bytes, facts->kernel.registers);
}

/* Reads the facts that an image must match: (symbol, sizes, num_warps, num_ctas, sm, arch_specific). Returns the owner of
 * `entry->symbol`, a new reference; NULL with an exception raised. */
static PyObject *read_entry(PyObject *facts, nj_expected_image *entry)
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
        entry->symbol = py_span(name);
    }
    entry->num_warps = clamp(warps);
    entry->num_ctas = clamp(ctas);
    entry->arch_specific = arch_specific;
    return name;
}

/* `check_image(image, symbol, sizes, num_warps, num_ctas, sm, arch_specific, where)`: checks that an image matches its table. Returns
 * (list of (offset, size) of the kernel's params, bytes of its own static shared memory, registers per thread). Raises
 * BundleFormatError or BundleIntegrityError at `where`. */
static PyObject *check_image(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer image;
    PyObject *told = NULL, *where, *unread;
    nj_expected_image entry;
    if (!PyArg_ParseTuple(args, "y*OOOOOOO:check_image", &image, &unread, &unread, &unread, &unread, &unread, &unread, &where)) {
        return NULL;
    }
    nj_image_facts facts;
    nj_error error;
    PyObject *asked = PyTuple_GetSlice(args, 1, 7), *name = asked == NULL ? NULL : read_entry(asked, &entry);
    if (name != NULL) {
        bool good = nj_image_check(py_buffer_span(&image), &entry, &facts, &error);
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
    return Py_BuildValue("(s#NINNNIIKKI)", (const char *)it->symbol.at, (Py_ssize_t)it->symbol.size, params_of(it), it->param_base,
                         declared(&it->block), declared(&it->largest_block), declared(&it->cluster), it->registers, it->stack_bytes,
                         (unsigned long long)it->static_shared_bytes, (unsigned long long)it->text_bytes,
                         nj_cubin_own_shared(cubin, it));
}

static PyObject *make_kernel(void *context, const void *Py_UNUSED(items), size_t number)
{
    nj_cubin *cubin = context;
    nj_image_kernel kernel;
    nj_error error;
    return nj_cubin_kernel_read(cubin, number, &kernel, &error) ? kernel_of(cubin, &kernel) : raise_unnamed(&error);
}

/* `read_cubin(image)`: returns the metadata of a cubin, as fields of `CubinInfo` and `CubinKernel`. Raises BundleFormatError. */
static PyObject *read_cubin(PyObject *Py_UNUSED(module), PyObject *image)
{
    Py_buffer bytes;
    nj_cubin cubin;
    nj_error error;
    PyObject *told = NULL, *kernels;
    if (PyObject_GetBuffer(image, &bytes, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (!nj_cubin_read(py_buffer_span(&bytes), &cubin, &error)) {
        raise_unnamed(&error);
    } else if ((kernels = py_tuple(cubin.kernel_count, make_kernel, &cubin, NULL)) != NULL) {
        told = Py_BuildValue("(NINiIN)", kernels, cubin.sm, PyBool_FromLong(cubin.arch_specific), cubin.elf.abi, cubin.toolkit,
                             PyBool_FromLong(nj_cubin_has_debug(&cubin)));
    }
    PyBuffer_Release(&bytes);
    return told;
}

/* `read_sections(image)`: returns a list of (name, content) of a cubin's sections. Raises BundleFormatError. */
static PyObject *read_sections(PyObject *Py_UNUSED(module), PyObject *image)
{
    Py_buffer bytes;
    nj_elf elf;
    nj_error error;
    PyObject *told = NULL;
    if (PyObject_GetBuffer(image, &bytes, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    nj_span whole = py_buffer_span(&bytes);
    if (!nj_elf_read(whole, nj_elf_kind_of(whole), &elf, &error)) {
        raise_unnamed(&error);
    } else if ((told = PyList_New(0)) != NULL) {
        for (size_t i = 0; told != NULL && i < elf.section_count; i++) {
            if (!py_append(told, Py_BuildValue("(NN)", py_bytes(elf.sections[i].name), py_bytes(elf.sections[i].content)))) {
                Py_CLEAR(told);
            }
        }
    }
    PyBuffer_Release(&bytes);
    return told;
}

static PyMethodDef functions[] = {
    {"check_image", check_image, METH_VARARGS,
     PyDoc_STR("Check that an image matches its table. Return (params, own shared bytes, registers per thread).")},
    {"read_cubin", read_cubin, METH_O, PyDoc_STR("The metadata of a cubin.")},
    {"read_sections", read_sections, METH_O, PyDoc_STR("The name and the content of each section of a cubin.")},
    {NULL},
};

int py_add_image_checks(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
