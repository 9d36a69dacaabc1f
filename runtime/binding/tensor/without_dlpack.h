/* Reads tensors whose type has no exchange API, by `__cuda_array_interface__` or `data_ptr()`. */
#ifndef NOJIT_WITHOUT_DLPACK_H
#define NOJIT_WITHOUT_DLPACK_H

#include "tensor/read_tensor.h"

/* Reads a tensor. Returns 1, 0 if the object has neither, or -1 with an exception raised. */
int py_read_without_dlpack(PyObject *object, py_tensor *tensor);

#endif
