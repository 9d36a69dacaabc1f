#include "base/arch.h"

/* Pairs of a family, named by its first compute capability, and a member. A family that is not listed has one member. Source: CUDA
 * Programming Guide, "Compute Capabilities", "Compilation Target", for 10.0 and 10.3. ptxas 13.4 puts 10.7 in both families too: it
 * assembles PTX of sm_100f and sm_103f for sm_107f, and refuses PTX of other families. */
static const nj_family_member families[] = {{100, 100}, {100, 103}, {100, 107}, {103, 103}, {103, 107}, {120, 120}, {120, 121}};

/* Chips that run no images of other chips of their major version: Tegra's, by the column "Jetson" of developer.nvidia.com/cuda-gpus and
 * cuda-legacy-gpus: 5.3, 6.2, 7.2, 8.7 (Orin) and 11.0 (Thor; CUDA before 13 calls it 10.1, and no document says that images of one
 * name run under the other). An Orin refuses an image of sm_80 with "no kernel image" (measured in jax-ml/jax pull request 40492). No
 * product of 8.8 is documented; it is listed because a missing image gives an error, but a wrong image that runs gives none. */
static const int alone[] = {53, 62, 72, 87, 88, 101, 110};

static bool is_alone(int capability)
{
    bool is = false;
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        is |= alone[i] == capability;
    }
    return is;
}

nj_text nj_arch_spell(int number)
{
    return nj_format(nj_is_gfx(number) ? "gfx%d" : "sm_%d", number);
}

bool nj_image_arch_take(nj_span text, nj_image_arch *image)
{
    enum { PREFIX = 3, DIGITS_MIN = 2, DIGITS_MAX = 4 };
    bool gfx = text.size > PREFIX && memcmp(text.at, "gfx", PREFIX) == 0;
    if (!gfx && (text.size <= PREFIX || memcmp(text.at, "sm_", PREFIX) != 0)) {
        return false;
    }
    unsigned char last = text.at[text.size - 1];
    bool has_suffix = !gfx && (last == 'a' || last == 'f');
    nj_span digits = {text.at + PREFIX, text.size - PREFIX - has_suffix};
    if (digits.size < DIGITS_MIN || digits.size > DIGITS_MAX) {
        return false;
    }
    *image = (nj_image_arch){0, has_suffix ? (char)last : 0};
    for (size_t i = 0; i < digits.size; i++) {
        if (digits.at[i] < '0' || digits.at[i] > '9') {
            return false;
        }
        image->number = 10 * image->number + (digits.at[i] - '0');
    }
    return nj_is_gfx(image->number) == gfx && (gfx ? digits.at[0] != '0' : digits.size < DIGITS_MAX);
}

nj_image_arch nj_image_arch_read(nj_span text)
{
    nj_image_arch image = {0, 0};
    nj_image_arch_take(text, &image);
    return image;
}

static bool runs_on(nj_image_arch image, int capability)
{
    /* LLVM's AMDGPU guide, "Processors": code runs only on the processor that it names, unless that is a generic one */
    if (image.suffix == 'a' || nj_is_gfx(image.number) || nj_is_gfx(capability) || is_alone(image.number) || is_alone(capability)) {
        return capability == image.number;
    }
    if (image.suffix != 'f') {
        return capability / 10 == image.number / 10 && capability >= image.number;
    }
    bool is = capability == image.number;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        is |= families[i].name == image.number && families[i].member == capability;
    }
    return is;
}

int nj_image_fit(nj_image_arch image, int capability)
{
    enum { KIND = 1000 };
    int kind = image.suffix == 'a' ? 3 : image.suffix == 'f' ? 2 : 1;
    return runs_on(image, capability) ? KIND * kind - (capability - image.number) : 0;
}

nj_family_member nj_image_family(size_t number)
{
    return number < sizeof families / sizeof *families ? families[number] : (nj_family_member){0, 0};
}

int nj_lone_arch(size_t number)
{
    return number < sizeof alone / sizeof *alone ? alone[number] : 0;
}
