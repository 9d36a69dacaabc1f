/* Architectures of GPUs, and which images run on them. */
#include "module.h"
#include "python/tuples.h"
#include "python/utf8.h"

#include "base/arch.h"

/* `read_image_arch(text)`: returns (number, suffix) of an image arch such as sm_90a or gfx942; None if the text is none. */
static PyObject *read_image_arch(PyObject *Py_UNUSED(module), PyObject *text)
{
    nj_span utf8;
    nj_image_arch arch;
    bool is_utf8 = py_borrow_text(text, &utf8);
    if (!is_utf8 && !PyErr_ExceptionMatches(PyExc_UnicodeError)) {
        return NULL;
    }
    if (!is_utf8 || !nj_image_arch_take(utf8, &arch)) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    return Py_BuildValue("is#", arch.number, &arch.suffix, (Py_ssize_t)(arch.suffix != 0));
}

/* `warp_threads(number)`: returns the threads per warp of an arch. */
static PyObject *warp_threads(PyObject *Py_UNUSED(module), PyObject *number)
{
    long arch = PyLong_AsLong(number);
    return arch == -1 && PyErr_Occurred() ? NULL : PyLong_FromUnsignedLong(nj_warp_threads((int)arch));
}

/* `image_fit(number, suffix, capability)`: returns how well images of an arch fit a device, higher is better; 0 if they do not run. */
static PyObject *image_fit(PyObject *Py_UNUSED(module), PyObject *args)
{
    int number, capability;
    const char *suffix;
    return PyArg_ParseTuple(args, "isi:image_fit", &number, &suffix, &capability)
               ? PyLong_FromLong(nj_image_fit((nj_image_arch){number, *suffix}, capability))
               : NULL;
}

/* `image_families()`: returns a dict of the members of each family of architectures. */
static PyObject *image_families(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    PyObject *families = PyDict_New();
    nj_family_member next;
    for (size_t i = 0; families != NULL && (next = nj_image_family(i)).name != 0; i++) {
        PyObject *name = PyLong_FromLong(next.name), *member = PyLong_FromLong(next.member), *none = PyList_New(0);
        PyObject *members = name == NULL || none == NULL ? NULL : PyDict_SetDefault(families, name, none);
        if (members == NULL || member == NULL || PyList_Append(members, member) < 0) {
            Py_CLEAR(families);
        }
        Py_XDECREF(name);
        Py_XDECREF(member);
        Py_XDECREF(none);
    }
    return families;
}

/* `lone_archs()`: returns the archs that share no images with others of their major version. */
static PyObject *lone_archs(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    PyObject *archs = PyList_New(0);
    int next;
    for (size_t i = 0; archs != NULL && (next = nj_lone_arch(i)) != 0; i++) {
        if (!py_append(archs, PyLong_FromLong(next))) {
            Py_CLEAR(archs);
        }
    }
    return archs;
}

static PyMethodDef functions[] = {
    {"read_image_arch", read_image_arch, METH_O, PyDoc_STR("Number and suffix of an image arch; None if a text names none.")},
    {"warp_threads", warp_threads, METH_O, PyDoc_STR("Threads per warp of an arch, by its number.")},
    {"image_fit", image_fit, METH_VARARGS,
     PyDoc_STR("How well images of an arch fit a device, higher is better; 0 if they do not run.")},
    {"image_families", image_families, METH_NOARGS, PyDoc_STR("The members of each family of architectures.")},
    {"lone_archs", lone_archs, METH_NOARGS, PyDoc_STR("The archs that share no images with others of their major version.")},
    {NULL},
};

int py_add_archs(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
