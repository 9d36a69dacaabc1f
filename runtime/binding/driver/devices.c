/* Functions that let Python query the driver and its devices. */
#include "driver/py_driver.h"
#include "module.h"

#include "driver/query.h"
#include "launch/loaded_image.h"

static PyObject *find_driver(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    bool found;
    Py_BEGIN_ALLOW_THREADS
    found = nj_driver_find();
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(found);
}

static PyObject *raise_driver(const nj_error *error)
{
    py_raise_driver(error, NULL, NULL);
    return NULL;
}

static PyObject *driver_version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    int version;
    nj_error error;
    if (py_need_driver() < 0) {
        return NULL;
    }
    return nj_driver_version(&version, &error) ? PyLong_FromLong(version) : raise_driver(&error);
}

static PyObject *device_count(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    int count;
    nj_error error;
    if (py_need_driver() < 0) {
        return NULL;
    }
    return nj_device_count(&count, &error) ? PyLong_FromLong(count) : raise_driver(&error);
}

/* Reads the number of a device, and initializes the driver. Returns 0, or -1 with an exception raised. */
static int read_ordinal(PyObject *number, int *ordinal)
{
    long read = PyLong_AsLong(number);
    *ordinal = read < 0 || read >= NJ_DEVICES_MAX ? -1 : (int)read;
    return (read == -1 && PyErr_Occurred()) || py_need_driver() < 0 ? -1 : 0;
}

static PyObject *device_facts(PyObject *Py_UNUSED(module), PyObject *number)
{
    int ordinal;
    nj_device_facts facts;
    nj_error error;
    if (read_ordinal(number, &ordinal) < 0) {
        return NULL;
    }
    return nj_device_describe(ordinal, &facts, &error)
               ? Py_BuildValue("(sin)", facts.name, facts.multiprocessors, (Py_ssize_t)facts.memory_bytes)
               : raise_driver(&error);
}

static PyObject *device_attribute(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *number;
    int ordinal, attribute, value;
    nj_error error;
    if (!PyArg_ParseTuple(args, "Oi:device_attribute", &number, &attribute) || read_ordinal(number, &ordinal) < 0) {
        return NULL;
    }
    return nj_device_attribute(ordinal, attribute, &value, &error) ? PyLong_FromLong(value) : raise_driver(&error);
}

static PyObject *device_capability(PyObject *Py_UNUSED(module), PyObject *number)
{
    int ordinal, capability;
    nj_error error;
    if (read_ordinal(number, &ordinal) < 0) {
        return NULL;
    }
    return nj_device_capability(ordinal, &capability, &error) ? PyLong_FromLong(capability) : raise_driver(&error);
}

/* Returns 0 instead of raising an error, since callers can do without the answer. */
static PyObject *running_capability(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    int capability;
    Py_BEGIN_ALLOW_THREADS
    capability = nj_running_capability();
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(capability);
}

static PyObject *current_device(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    int device = py_find_current_device();
    return device < 0 ? NULL : PyLong_FromLong(device);
}

static PyObject *forget_images(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    nj_images_forget();
    Py_RETURN_NONE;
}

static PyObject *healthy(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    bool healthy;
    Py_BEGIN_ALLOW_THREADS
    healthy = nj_driver_healthy();
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(healthy);
}

static PyMethodDef functions[] = {
    {"find_driver", find_driver, METH_NOARGS,
     PyDoc_STR("Look up the symbols of a driver that the process has opened, and return whether they are found. Call none of them.")},
    {"driver_version", driver_version, METH_NOARGS, PyDoc_STR("The CUDA version of the driver: 13000 for 13.0.")},
    {"device_count", device_count, METH_NOARGS, PyDoc_STR("Number of devices.")},
    {"device_capability", device_capability, METH_O, PyDoc_STR("The compute capability of a device: 90 for 9.0.")},
    {"running_capability", running_capability, METH_NOARGS,
     PyDoc_STR("The compute capability of the device of this thread's context, 0 without one. Starts nothing.")},
    {"device_facts", device_facts, METH_O,
     PyDoc_STR("(name, multiprocessors, bytes of memory) of a device.")},
    {"device_attribute", device_attribute, METH_VARARGS, PyDoc_STR("The value of `cuDeviceGetAttribute` for a device.")},
    {"current_device", current_device, METH_NOARGS,
     PyDoc_STR("The device of this thread's current context; 0 if there is none.")},
    {"healthy", healthy, METH_NOARGS,
     PyDoc_STR("False if the driver does not initialize, or after an error that only a new process recovers from. Query each "
               "device in use.")},
    {"forget_images", forget_images, METH_NOARGS, PyDoc_STR("Have the next load of each image load it again, for tests.")},
    {NULL},
};

int py_add_devices(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
