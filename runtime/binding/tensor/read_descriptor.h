/* Reads host-side tensor descriptors, which a kernel that copies by TMA takes instead of a pointer. */
#ifndef NOJIT_READ_DESCRIPTOR_H
#define NOJIT_READ_DESCRIPTOR_H

#include "tensor/read_tensor.h"

#include "expr/arguments.h"

/* Sets shape, strides and rank. Returns 0, or -1 with an exception raised. Does not check the sizes: each launch does. */
int py_descriptor_set(PyObject *shape, PyObject *strides, nj_descriptor *descriptor);

/* Sets the box and the steps of a copy, each a sequence or None. The rank must be set. Returns 0, or -1 with an exception raised. */
int py_descriptor_set_box(PyObject *box, PyObject *steps, nj_descriptor *descriptor);

/* Reads base, shape, strides and block_shape, and the optional padding and round_f32_to_tf32. Returns 0, or -1 with an exception raised
 * for `argument` of `kernel`. */
int py_read_descriptor(PyObject *object, const py_seen *seen, PyObject *kernel, PyObject *argument,
                       nj_descriptor *descriptor, py_tensor *base);

#endif
