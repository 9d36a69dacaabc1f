/* Images in the driver, each loaded once, whichever bundles hold its group. They stay loaded for the life of the process: an unload
 * would break a graph capture under way, and any launch that another thread has in flight. */
#ifndef NOJIT_LAUNCH_LOADED_IMAGE_H
#define NOJIT_LAUNCH_LOADED_IMAGE_H

#include "bundle/reader.h"
#include "driver/function.h"
#include "image/check.h"

/* An image of a bundle, and the kernel that is wanted of it. */
typedef struct {
    nj_image_bytes bytes;
    int min_driver; /* 13010: CUDA 13.1; 6040: ROCm 6.4 */
    nj_expected_image entry;
} nj_image;

/* Describes an image of a bundle, by an entry without arch. */
NJ_FOR_BINDING nj_image nj_image_of(const nj_reader *reader, const nj_image_bytes *bytes, const nj_expected_image *entry);

/* Returns the kernel, the same one at each call: checks the image against its entry, loads it if the driver has not, and checks
 * what a device's driver makes of it. `loaded` says whether it was loaded now. NULL with `error` filled, of NJ_ERROR_INTEGRITY or
 * NJ_ERROR_FORMAT for another image than the entry's. */
NJ_FOR_BINDING nj_function *nj_image_load(const nj_image *image, int device, bool *loaded, nj_error *error);

/* Puts the image of a kernel on a device now; false with `error` filled. */
NJ_FOR_BINDING bool nj_function_place(const nj_function *function, int device, nj_error *error);

/* Has the next load of each image load it anew, as a test needs that stands for a new process. What is loaded stays, and so does
 * what knows of it. */
NJ_FOR_BINDING void nj_images_forget(void);

#endif
