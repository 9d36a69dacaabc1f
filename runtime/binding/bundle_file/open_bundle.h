/* Open bundles of the engine for Python. */
#ifndef NOJIT_OPEN_BUNDLE_H
#define NOJIT_OPEN_BUNDLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Makes the type; once, at import. */
int py_bundle_init(PyObject *module);

/* `read_image_arch(text)`: number and suffix of an image arch such as sm_90a or gfx942; None if the text names none. */
PyObject *py_read_image_arch(PyObject *module, PyObject *text);

/* `warp_threads(number)`: threads of a warp of an arch. */
PyObject *py_warp_threads_of(PyObject *module, PyObject *number);

/* `image_fit(number, suffix, capability)`: how well images of an arch fit a device, the higher the better; 0 if they do not run there. */
PyObject *py_image_fit_of(PyObject *module, PyObject *args);

/* `image_families()`: the members of each family of architectures, as a dict; `lone_archs()`: chips that share no images. */
PyObject *py_image_families(PyObject *module, PyObject *none);
PyObject *py_lone_archs(PyObject *module, PyObject *none);

/* `sha256(data)`: the digest of bytes. */
PyObject *py_sha256_of(PyObject *module, PyObject *data);

/* `read_frame(frame, raw_bytes, decompress, where)`: what a zstd frame holds, as a bundle is read: by `decompress(frame, raw)`, which fills
 * `raw`, by libzstd if that is None. Raises BundleError at `where`. */
PyObject *py_read_frame(PyObject *module, PyObject *args);

#endif
