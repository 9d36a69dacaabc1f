"""GPU architecture names, which device runs which image, and how CUDA versions are spelled. Pure.

An *arch* names Triton's target (``sm_90``). Its *image* is what ptxas made of it: Triton assembles every arch from 9.0
up as ``sm_90a``, whose code runs on exactly that chip; ``sm_100f`` runs on the rest of its family too; a plain ``sm_80``
runs on every device of the same major version and at least its minor.
"""

from __future__ import annotations

import re

from nojit.runtime.record import Record

__all__ = [
    "ARCHS",
    "FAMILIES",
    "ImageArch",
    "arch_number",
    "image_arch_of",
    "is_arch",
    "parse_image_arch",
    "spell_cuda",
]

# what every supported Triton (3.6 to 3.9) compiles for and its ptxas assembles
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121")
# members of each architecture family, by the compute capability that names it (CUDA programming guide, "family-specific")
FAMILIES: dict[int, frozenset[int]] = {
    100: frozenset({100, 103}),
    120: frozenset({120, 121}),
}

_ARCH = re.compile(r"sm_([0-9]{2,3})\Z")
_IMAGE_ARCH = re.compile(r"sm_([0-9]{2,3})([af]?)\Z")
# Triton assembles every arch from this one up for exactly that chip
_FIRST_EXACT = 90
PDL_SINCE = 90
"""The first with programmatic dependent launches."""


class ImageArch(Record):
    """The architecture that a cubin was assembled for."""

    number: int
    """Compute capability without the dot: 90 for 9.0."""
    suffix: str
    """``a`` exactly this chip, ``f`` its family, empty the same major version."""

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"

    def runs_on(self, device: int) -> bool:
        """Say whether a device of compute capability `device` (90 for 9.0) runs this image."""
        if self.suffix == "a":
            return device == self.number
        if self.suffix == "f":
            return device in FAMILIES.get(self.number, frozenset({self.number})) and device >= self.number
        return device // 10 == self.number // 10 and device >= self.number

    def closeness(self, device: int) -> tuple[int, int]:
        """Order the images that run on `device`: the exact chip first, then its family, then the nearest minor."""
        return ({"a": 0, "f": 1, "": 2}[self.suffix], device - self.number)


def spell_cuda(number: int) -> str:
    """Spell a CUDA version as ``cuDriverGetVersion`` gives it: 13010 is ``13.1``."""
    return f"{number // 1000}.{number % 1000 // 10}"


def is_arch(text: str) -> bool:
    """Say whether a text is spelled ``sm_NN``."""
    return _ARCH.match(text) is not None


def arch_number(arch: str) -> int:
    """Read ``sm_90`` as 90.

    Raises:
        ValueError: `arch` is not spelled ``sm_NN``.
    """
    # callers of the runtime may well write 90
    match = _ARCH.match(str(arch))
    if match is None:
        raise ValueError(f"expected an arch such as sm_90, got {arch!r}")
    return int(match[1])


def parse_image_arch(text: str) -> ImageArch:
    """Read ``sm_90a``.

    Raises:
        ValueError: `text` is not spelled ``sm_NN``, ``sm_NNa`` or ``sm_NNf``.
    """
    match = _IMAGE_ARCH.match(text)
    if match is None:
        raise ValueError(f"expected an image arch such as sm_90a, got {text!r}")
    return ImageArch(int(match[1]), match[2])


def image_arch_of(arch: str) -> ImageArch:
    """Name the image that Triton makes for `arch`."""
    number = arch_number(arch)
    return ImageArch(number, "a" if number >= _FIRST_EXACT else "")
