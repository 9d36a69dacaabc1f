#include "tensor/read_descriptor.h"

#include "module.h"
#include "python/at_import.h"
#include "python/attributes.h"
#include "python/exceptions.h"
#include "tensor/geometry.h"

#include "launch/descriptor.h"

/* Set once by `py_add_descriptor_names` under the import lock. */
static struct {
    PyObject *base, *shape, *strides, *block_shape, *padding, *round_f32_to_tf32, *box, *steps;
} names;

int py_add_descriptor_names(PyObject *Py_UNUSED(module))
{
    static const py_interned wanted[] = {
        {&names.base, "base"},
        {&names.shape, "shape"},
        {&names.strides, "strides"},
        {&names.block_shape, "block_shape"},
        {&names.padding, "padding"},
        {&names.round_f32_to_tf32, "round_f32_to_tf32"},
        {&names.box, "box"},
        {&names.steps, "steps"},
        {NULL},
    };
    return py_intern(wanted);
}

/* Reads the ints of a sequence. Returns their number, or -1 with an exception raised. Steals `sequence`, which may be NULL. */
static int take_ints(PyObject *sequence, PyObject *name, int64_t numbers[NJ_DESCRIPTOR_RANK_MAX])
{
    PyObject *tuple = sequence == NULL ? NULL : PyTuple_Check(sequence) ? Py_NewRef(sequence) : PySequence_Tuple(sequence);
    Py_XDECREF(sequence);
    if (tuple == NULL) {
        return -1;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (count < 1 || count > NJ_DESCRIPTOR_RANK_MAX) {
        PyErr_Format(PyExc_ValueError, "%U: expected 1 to %d dimensions, got %zd", name, NJ_DESCRIPTOR_RANK_MAX, count);
        count = -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *number = PyNumber_Index(PyTuple_GET_ITEM(tuple, i));
        numbers[i] = number == NULL ? -1 : PyLong_AsLongLong(number);
        Py_XDECREF(number);
        if (numbers[i] == -1 && PyErr_Occurred()) {
            count = -1;
        }
    }
    Py_DECREF(tuple);
    return (int)count;
}

static int read_ints(PyObject *object, PyObject *name, int64_t numbers[NJ_DESCRIPTOR_RANK_MAX])
{
    return take_ints(PyObject_GetAttr(object, name), name, numbers);
}

static int refuse_ranks(int shape, int strides, int block)
{
    PyErr_Format(PyExc_ValueError, "expected as many strides and block dimensions as the shape has, got %d, %d and %d",
                 shape, strides, block);
    return -1;
}

/* Reads the block shape, zeros if it is None. Returns its rank, or -1 with an exception raised. */
static int read_block(PyObject *object, int rank, nj_descriptor *descriptor)
{
    PyObject *given = PyObject_GetAttr(object, names.block_shape);
    if (given == Py_None) {
        memset(descriptor->block, 0, sizeof descriptor->block);
        Py_DECREF(given);
        return rank;
    }
    int64_t block[NJ_DESCRIPTOR_RANK_MAX];
    int blocks = take_ints(given, names.block_shape, block);
    for (int i = 0; i < blocks; i++) {
        if (block[i] < 1 || block[i] > UINT32_MAX) {
            PyErr_Format(PyExc_ValueError, "block_shape: expected positive sizes, got %lld", (long long)block[i]);
            return -1;
        }
        descriptor->block[i] = (uint32_t)block[i];
    }
    return blocks;
}

/* Raises the engine's error as a ValueError. Returns -1. */
static int raise_found(const nj_error *error)
{
    PyErr_Format(PyExc_ValueError, "%s, got %s", error->what, error->got);
    return -1;
}

static int check_geometry(const nj_descriptor *descriptor)
{
    nj_error error;
    return nj_descriptor_check_geometry(descriptor, -1, &error) ? 0 : raise_found(&error);
}

static int read_geometry(PyObject *object, nj_descriptor *descriptor)
{
    int rank = read_ints(object, names.shape, descriptor->shape);
    int strides = rank < 0 ? -1 : read_ints(object, names.strides, descriptor->strides);
    int blocks = strides < 0 ? -1 : read_block(object, rank, descriptor);
    if (blocks < 0) {
        return -1;
    }
    if (strides != rank || blocks != rank) {
        return refuse_ranks(rank, strides, blocks);
    }
    descriptor->rank = (uint8_t)rank;
    return check_geometry(descriptor);
}

int py_descriptor_set(PyObject *shape, PyObject *strides, nj_descriptor *descriptor)
{
    int rank = take_ints(Py_NewRef(shape), names.shape, descriptor->shape);
    int others = rank < 0 ? -1 : take_ints(Py_NewRef(strides), names.strides, descriptor->strides);
    if (others < 0) {
        return -1;
    }
    if (others != rank) {
        return refuse_ranks(rank, others, rank);
    }
    descriptor->rank = (uint8_t)rank;
    return 0;
}

int py_descriptor_set_box(PyObject *box, PyObject *steps, nj_descriptor *descriptor)
{
    int64_t sizes[NJ_DESCRIPTOR_RANK_MAX], apart[NJ_DESCRIPTOR_RANK_MAX];
    int rank = descriptor->rank;
    int count = box == Py_None ? rank : take_ints(Py_NewRef(box), names.box, sizes);
    int others = count < 0 ? -1 : steps == Py_None ? rank : take_ints(Py_NewRef(steps), names.steps, apart);
    if (others < 0) {
        return -1;
    }
    if (count != rank || others != rank) {
        PyErr_Format(PyExc_ValueError, "expected a box and steps of %d dimensions, as the shape has, got %d and %d", rank,
                     count, others);
        return -1;
    }
    nj_error error;
    if (!nj_descriptor_check_box((size_t)rank, box == Py_None ? NULL : sizes, steps == Py_None ? NULL : apart, -1, &error)) {
        return raise_found(&error);
    }
    for (int i = 0; i < rank; i++) {
        descriptor->box[i] = box == Py_None ? 0 : (uint16_t)sizes[i];
        descriptor->steps[i] = steps == Py_None ? 0 : (uint8_t)apart[i];
    }
    return 0;
}

/* Reads padding and rounding. The defaults for missing attributes are zero padding and no rounding. */
static int read_options(PyObject *object, nj_descriptor *descriptor)
{
    descriptor->pads_nan = descriptor->rounds_tf32 = false;
    PyObject *padding = py_optional_attribute(object, names.padding);
    if (padding != NULL) {
        bool text = PyUnicode_Check(padding);
        descriptor->pads_nan = text && PyUnicode_CompareWithASCIIString(padding, "nan") == 0;
        if (!descriptor->pads_nan && (!text || PyUnicode_CompareWithASCIIString(padding, "zero") != 0)) {
            PyErr_Format(PyExc_ValueError, "padding: expected 'zero' or 'nan', got %R", padding);
        }
        Py_DECREF(padding);
    }
    PyObject *rounds = PyErr_Occurred() ? NULL : py_optional_attribute(object, names.round_f32_to_tf32);
    if (rounds != NULL) {
        int truth = PyObject_IsTrue(rounds);
        descriptor->rounds_tf32 = truth > 0;
        Py_DECREF(rounds);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int check_options(const nj_descriptor *descriptor, PyObject *kernel, PyObject *argument)
{
    nj_error error;
    if (nj_descriptor_check_options(descriptor, -1, &error)) {
        return 0;
    }
    py_refuse(kernel, argument, PyUnicode_FromString(error.got), "%s", error.what);
    return -1;
}

/* Reads everything except the base, and returns the base as a new reference; NULL with an exception raised. */
static PyObject *read_parts(PyObject *object, nj_descriptor *descriptor)
{
    if (Py_IS_TYPE(object, py_described_type)) {
        *descriptor = ((py_described *)object)->geometry->numbers;
        return check_geometry(descriptor) < 0 ? NULL : Py_NewRef(((py_described *)object)->base);
    }
    memset(descriptor->box, 0, sizeof descriptor->box);
    memset(descriptor->steps, 0, sizeof descriptor->steps);
    bool read = read_geometry(object, descriptor) == 0 && read_options(object, descriptor) == 0;
    return read ? PyObject_GetAttr(object, names.base) : NULL;
}

int py_read_descriptor(PyObject *object, const py_seen *seen, PyObject *kernel, PyObject *argument,
                       nj_descriptor *descriptor, py_tensor *base)
{
    PyObject *tensor = read_parts(object, descriptor);
    if (tensor == NULL) {
        py_refuse_pending(kernel, argument, "expected a tensor descriptor");
        return -1;
    }
    int status = py_read_tensor(tensor, seen, kernel, argument, base);
    if (status == 0) {
        py_refuse(kernel, argument, PyUnicode_FromString(Py_TYPE(tensor)->tp_name),
                  "expected a tensor descriptor with a tensor as its base");
    }
    Py_DECREF(tensor);
    descriptor->base = base->value;
    return status > 0 ? check_options(descriptor, kernel, argument) : -1;
}
