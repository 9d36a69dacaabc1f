/* Tensor descriptors of the host: what a kernel that copies by TMA takes instead of a pointer. */
#ifndef NOJIT_READ_DESCRIPTOR_H
#define NOJIT_READ_DESCRIPTOR_H

#include "tensor/read_tensor.h"

#include "expr/arguments.h"

/* Sets shape, strides and rank: 0, or -1 with an exception raised. Sizes are checked where a launch reads them. */
int py_descriptor_set(PyObject *shape, PyObject *strides, nj_descriptor *descriptor);

/* Sets what a copy takes, a sequence or None each, once the rank is set: 0, or -1 with an exception raised. */
int py_descriptor_set_box(PyObject *box, PyObject *steps, nj_descriptor *descriptor);

/* Reads base, shape, strides, block_shape, and padding and round_f32_to_tf32 where they are there: 0, or -1 with an
 * exception raised for `argument` of `kernel`. */
int py_read_descriptor(PyObject *object, const py_seen *seen, PyObject *kernel, PyObject *argument,
                       nj_descriptor *descriptor, py_tensor *base);

#endif
