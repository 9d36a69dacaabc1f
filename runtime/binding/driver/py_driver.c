#include "driver/py_driver.h"

#include "python/exceptions.h"
#include "python/threads.h"

static struct {
    py_mutex lock;   /* guards the other fields */
    PyObject *label; /* last plan enqueued on the device, which a later error names; owned */
    unsigned int grid[3];
} lasts[NJ_DEVICES_MAX];

void py_device_note(const nj_device *device, PyObject *label, const unsigned int grid[3])
{
    PyObject *old = NULL;
    PY_LOCK(&lasts[device->ordinal].lock);
    if (lasts[device->ordinal].label != label) {
        old = lasts[device->ordinal].label;
        lasts[device->ordinal].label = Py_NewRef(label);
    }
    memcpy(lasts[device->ordinal].grid, grid, sizeof lasts->grid);
    PY_UNLOCK(&lasts[device->ordinal].lock);
    Py_XDECREF(old);
}

/* Returns "; last launch: ..." of a device, "" if there was none; NULL with an exception raised. */
static PyObject *last_launch(const nj_device *device)
{
    unsigned int grid[3];
    PY_LOCK(&lasts[device->ordinal].lock);
    PyObject *label = Py_XNewRef(lasts[device->ordinal].label);
    memcpy(grid, lasts[device->ordinal].grid, sizeof grid);
    PY_UNLOCK(&lasts[device->ordinal].lock);
    if (label == NULL) {
        return PyUnicode_FromString("");
    }
    PyObject *text =
        PyUnicode_FromFormat("; last launch: %S with grid (%u, %u, %u)", label, grid[0], grid[1], grid[2]);
    Py_DECREF(label);
    return text;
}

void py_raise_driver(const nj_error *error, const nj_device *device, PyObject *where)
{
    bool told = device != NULL && nj_is_sticky(error->driver_code);
    PyObject *last = told ? last_launch(device) : PyUnicode_FromString("");
    PyObject *what = last == NULL ? NULL : PyUnicode_FromFormat("%s%U", error->what, last);
    if (what != NULL) {
        py_driver_error(error->call, error->driver_code, error->got, what, where);
    }
    Py_XDECREF(what);
    Py_XDECREF(last);
}

void py_raise_forked(PyObject *where)
{
    nj_error error;
    nj_refuse_forked(&error);
    py_raise_driver(&error, NULL, where);
}

int py_need_driver(void)
{
    nj_error error;
    bool ready = nj_driver_known() && !nj_forked();
    if (!ready) {
        Py_BEGIN_ALLOW_THREADS
        ready = nj_driver_ready(&error);
        Py_END_ALLOW_THREADS
    }
    if (!ready) {
        py_raise_driver(&error, NULL, NULL);
    }
    return ready ? 0 : -1;
}

nj_device *py_need_device(int ordinal)
{
    nj_error error;
    nj_device *device;
    Py_BEGIN_ALLOW_THREADS
    device = nj_device_ready(ordinal, &error);
    Py_END_ALLOW_THREADS
    if (device == NULL) {
        py_raise_driver(&error, NULL, NULL);
    }
    return device;
}

int py_find_current_device(void)
{
    nj_error error;
    int ordinal;
    if (py_need_driver() < 0) {
        return -1;
    }
    ordinal = nj_current_device(&error);
    if (ordinal < 0) {
        py_raise_driver(&error, NULL, NULL);
    }
    return ordinal;
}
