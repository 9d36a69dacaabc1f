"""Names of GPU architectures, which device runs which image, and spelling of CUDA versions. Pure.

An *arch* is the name of Triton's target (``sm_90``). Its *image* is what ptxas makes of it: Triton assembles every arch from 9.0
on as ``sm_90a``. `ImageArch.runs_on` is the only rule of where an image runs:

=================== ======================================= =====================================================
image               runs on                                 source
=================== ======================================= =====================================================
``sm_90a``          exactly that chip                       CUDA Programming Guide, "Compute Capabilities",
                                                            architecture-specific features
``sm_100f``         `FAMILIES`                              there, family-specific features
``sm_80``           the same major version, the same minor  CUDA C++ Programming Guide, "Binary Compatibility"
                    one or a later one
of a chip in        exactly that chip, plain or not; that   there: "Binary compatibility is supported only for the
`ALONE`             chip takes no other image               desktop. It is not supported for Tegra. Also, the
                                                            binary compatibility between desktop and Tegra is
                                                            not supported."
=================== ======================================= =====================================================
"""

from __future__ import annotations

import re

from nojit.runtime.record import Record

__all__ = [
    "ALONE",
    "ARCHS",
    "FAMILIES",
    "FIRST_EXACT",
    "PDL_SINCE",
    "ImageArch",
    "arch_number",
    "by_arch",
    "image_arch_of",
    "is_arch",
    "parse_image_arch",
    "spell_cuda",
]

ARCHS = (
    "sm_75",
    "sm_80",
    "sm_86",
    "sm_87",
    "sm_88",
    "sm_89",
    "sm_90",
    "sm_100",
    "sm_101",
    "sm_103",
    "sm_107",
    "sm_110",
    "sm_120",
    "sm_121",
)
"""Architectures that the ptxas of some supported Triton (3.6 to 3.9) assembles. A build asks its own ptxas, which may know more."""

FAMILIES: dict[int, frozenset[int]] = {
    # Compute Capabilities, "Compilation Target": 10.0 and 10.3. ptxas 13.4 puts 10.7 into both families, too: it assembles PTX of
    # sm_100f and sm_103f for sm_107f, and refuses that of another family
    100: frozenset({100, 103, 107}),
    103: frozenset({103, 107}),
    120: frozenset({120, 121}),
}
"""Members of each family of architectures, by the compute capability that names it; any other family has one member."""

ALONE = frozenset({53, 62, 72, 87, 88, 101, 110})
"""Chips that share no images with others of their major version.

Tegra's, by the column "Jetson" of developer.nvidia.com/cuda-gpus and cuda-legacy-gpus: 5.3, 6.2, 7.2, 8.7 (Orin) and 11.0 (Thor,
which CUDA before 13 calls 10.1; no source says that images of either name run under the other). On an Orin, an image of sm_80 is "no
kernel image" (measured in jax-ml/jax pull request 40492). No product of 8.8 is documented. It counts as one of these chips, because a
missing image is an error that users see, and an unsuitable one may not be.
"""

_ARCH = re.compile(r"sm_([0-9]{2,3})\Z")
_DIGITS = re.compile(r"(?<=sm_)[0-9]+|(?<=sm)[0-9]+")
_IMAGE_ARCH = re.compile(r"sm_([0-9]{2,3})([af]?)\Z")
FIRST_EXACT = 90
"""Triton assembles every arch from this one on for exactly that chip."""
PDL_SINCE = 90
"""The first arch with programmatic dependent launches."""


class ImageArch(Record):
    """The architecture that a cubin was assembled for."""

    number: int
    """Compute capability without the dot: 90 for 9.0."""
    suffix: str
    """``a`` for exactly this chip, ``f`` for its family, empty for the same major version; see `ImageArch.runs_on`."""

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"

    def runs_on(self, device: int) -> bool:
        """Return whether a device of compute capability `device` (90 for 9.0) runs this image; see the table above."""
        if self.suffix == "a" or self.number in ALONE or device in ALONE:
            return device == self.number
        if self.suffix == "f":
            return device in FAMILIES.get(self.number, frozenset({self.number}))
        return device // 10 == self.number // 10 and device >= self.number

    def closeness(self, device: int) -> tuple[int, int]:
        """Return the sort key of images that run on `device`: the exact chip first, then its family, then the nearest minor version."""
        return ({"a": 0, "f": 1, "": 2}[self.suffix], device - self.number)


def by_arch(text: str) -> str:
    """Return the sort key of a name that contains an arch: ``sm_90`` comes before ``sm_100``."""
    return _DIGITS.sub(lambda match: match[0].zfill(4), text)


def spell_cuda(number: int) -> str:
    """Return a CUDA version of ``cuDriverGetVersion`` as text: 13010 is ``13.1``."""
    return f"{number // 1000}.{number % 1000 // 10}"


def is_arch(text: str) -> bool:
    """Return whether a text is spelled ``sm_NN``."""
    return _ARCH.match(text) is not None


def arch_number(arch: str) -> int:
    """Return the number of an arch: 90 for ``sm_90``.

    Raises:
        ValueError: `arch` is not spelled ``sm_NN``.
    """
    # callers may pass 90
    match = _ARCH.match(str(arch))
    if match is None:
        raise ValueError(f"expected an arch such as sm_90, got {arch!r}")
    return int(match[1])


def parse_image_arch(text: str) -> ImageArch:
    """Parse an image arch, such as ``sm_90a``.

    Raises:
        ValueError: `text` is not spelled ``sm_NN``, ``sm_NNa`` or ``sm_NNf``.
    """
    match = _IMAGE_ARCH.match(text)
    if match is None:
        raise ValueError(f"expected an image arch such as sm_90a, got {text!r}")
    return ImageArch(int(match[1]), match[2])


def image_arch_of(arch: str) -> ImageArch:
    """Return the image arch that Triton makes for `arch`."""
    number = arch_number(arch)
    return ImageArch(number, "a" if number >= FIRST_EXACT else "")
