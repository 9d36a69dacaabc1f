/* Loads images into the driver. Each image is loaded once, even if several bundles hold its group. Images stay loaded until the process
 * ends, because an unload would break graph captures in progress and launches in flight on other threads. */
#ifndef NOJIT_LAUNCH_LOADED_IMAGE_H
#define NOJIT_LAUNCH_LOADED_IMAGE_H

#include "bundle/reader.h"
#include "driver/function.h"
#include "image/check.h"

/* An image of a bundle, and the kernel to get from it. */
typedef struct {
    nj_image_bytes bytes;
    int min_driver; /* 13010: CUDA 13.1; 6040: ROCm 6.4 */
    nj_expected_image entry;
} nj_image;

/* Returns the description of an image; takes its arch from the bundle's index, since `entry` has none. */
NJ_FOR_BINDING nj_image nj_image_of(const nj_reader *reader, const nj_image_bytes *bytes, const nj_expected_image *entry);

/* Checks an image against its entry, loads it unless it is already loaded, checks the kernel's params in the driver, and returns the
 * kernel, the same one at each call. Sets `loaded` to true if this call loaded the image. NULL with `error` filled; NJ_ERROR_INTEGRITY or
 * NJ_ERROR_FORMAT if the image is not the entry's. */
NJ_FOR_BINDING nj_function *nj_image_load(const nj_image *image, int device, bool *loaded, nj_error *error);

/* Loads the image of a kernel on a device now, not at the first launch; false with `error` filled. */
NJ_FOR_BINDING bool nj_function_place(const nj_function *function, int device, nj_error *error);

/* Empties the table of loaded images, so that the next use of each image loads it again. For tests that simulate a new process. Images
 * stay loaded, and existing plans stay valid. */
NJ_FOR_BINDING void nj_images_forget(void);

#endif
