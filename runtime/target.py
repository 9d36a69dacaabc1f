"""GPU architecture names, which device runs which image, and how versions of drivers are spelled. Pure.

An *arch* names Triton's target: ``sm_90``, or ``gfx942`` for AMD's GPUs. The *image* of one of NVIDIA's is what ptxas made of it: Triton assembles every arch from 9.0
up as ``sm_90a``. The engine reads these names, and says where an image runs, `ImageArch.runs_on`:

=================== ======================================= =====================================================
image               runs on                                 source
=================== ======================================= =====================================================
``sm_90a``          exactly that chip                       CUDA Programming Guide, "Compute Capabilities",
                                                            architecture-specific features
``sm_100f``         `FAMILIES`                              there, family-specific features
``sm_80``           the same major version, the same minor  CUDA C++ Programming Guide, "Binary Compatibility"
                    one or a later one
of a chip in        exactly that chip, plain or not, and    there: "Binary compatibility is supported only for the
`ALONE`, and on it  that chip takes no other image          desktop. It is not supported for Tegra. Also, the
                                                            binary compatibility between desktop and Tegra is
                                                            not supported."
``gfx942``          exactly that chip                       LLVM, "User Guide for AMDGPU Backend", "Processors"
=================== ======================================= =====================================================
"""

from __future__ import annotations

from nojit.runtime.base.frozen_record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "ALONE",
    "ARCHS",
    "FAMILIES",
    "FIRST_EXACT",
    "GFX_FIRST",
    "PDL_SINCE",
    "ImageArch",
    "arch_number",
    "by_arch",
    "image_arch_of",
    "is_arch",
    "is_gfx",
    "is_image_arch",
    "parse_image_arch",
    "spell_arch",
    "spell_cuda",
    "spell_driver",
    "warp_threads",
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
"""The archs that the ptxas of some supported Triton (3.6 to 3.9) assembles. A build asks its own ptxas, which may know more."""

FAMILIES: dict[int, frozenset[int]]
"""Members of each family of architectures, by the compute capability that names it; of others, that one alone."""

ALONE: frozenset[int]
"""Chips that share no images with others of their major version."""

_STARTS = ("sm_", "sm", "gfx")
GFX_FIRST: int
"""The least number of AMD's archs; no compute capability is as high."""
FIRST_EXACT = 90
"""Triton assembles every arch from this one up for exactly that chip."""
PDL_SINCE = 90
"""The first with programmatic dependent launches."""


class ImageArch(Record):
    """The architecture that an image was assembled for."""

    number: int
    """Compute capability without the dot, 90 for 9.0; 942 for gfx942."""
    suffix: str
    """``a`` exactly this chip, ``f`` its family, empty the same major version, as far as `ImageArch.runs_on` goes."""

    def __str__(self) -> str:
        return f"{spell_arch(self.number)}{self.suffix}"

    def runs_on(self, device: int) -> bool:
        """Say whether a device of the arch `device` (90 for ``sm_90``) runs this image; see the table above."""
        return bool(_engine().image_fit(self.number, self.suffix, device) > 0)

    def closeness(self, device: int) -> int:
        """Order the images that run on `device`: the exact chip first, then its family, then the nearest minor."""
        return -int(_engine().image_fit(self.number, self.suffix, device))


def _engine() -> Any:
    # tables import this module, and the binding imports tables
    from nojit.runtime import _core

    return _core


def __getattr__(name: str) -> Any:
    if name == "GFX_FIRST":
        return _engine().GFX_FIRST
    if name == "ALONE":
        return frozenset(_engine().lone_archs())
    if name == "FAMILIES":
        return {family: frozenset(members) for family, members in _engine().image_families().items()}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def by_arch(text: str) -> str:
    """Return what to sort names by that hold archs: ``sm_90`` comes before ``sm_100``."""
    # without `re`, which takes longer to import than all of the runtime
    for start in _STARTS:
        head, *tails = text.split(start)
        text = start.join([head, *map(_padded, tails)])
    return text


def _padded(text: str) -> str:
    rest = text.lstrip("0123456789")
    digits = text[: len(text) - len(rest)]
    return digits.zfill(4) + rest if digits else text


def spell_cuda(number: int) -> str:
    """Spell a CUDA version as ``cuDriverGetVersion`` gives it: 13010 is ``13.1``."""
    return f"{number // 1000}.{number % 1000 // 10}"


def spell_driver(arch: int, number: int) -> str:
    """Spell a version of the driver of an arch's vendor: ``CUDA 13.1``, ``ROCm 6.4``.

    Args:
        arch: number of the arch.
        number: 13010 for CUDA 13.1, 6040 for ROCm 6.4.
    """
    return f"{'ROCm' if is_gfx(arch) else 'CUDA'} {spell_cuda(number)}"


def is_gfx(number: int) -> bool:
    """Say whether a number of an arch is one of AMD's."""
    return bool(number >= _engine().GFX_FIRST)


def warp_threads(number: int) -> int:
    """Return the threads of a warp, which AMD calls wavefront, in Triton's code for the arch of a number."""
    return int(_engine().warp_threads(number))


def spell_arch(number: int) -> str:
    """Spell the arch of a number: 90 is ``sm_90``, 942 is ``gfx942``."""
    return f"gfx{number}" if is_gfx(number) else f"sm_{number}"


def _read(text: str) -> tuple[int, str] | None:
    read: tuple[int, str] | None = _engine().read_image_arch(text)
    return read


def is_arch(text: str) -> bool:
    """Say whether a text is spelled ``sm_NN`` or ``gfxNNN``."""
    read = _read(text)
    return read is not None and not read[1]


def is_image_arch(text: str) -> bool:
    """Say whether a text is spelled ``sm_NN``, ``sm_NNa``, ``sm_NNf`` or ``gfxNNN``."""
    return _read(text) is not None


def arch_number(arch: str) -> int:
    """Read ``sm_90`` as 90, ``gfx942`` as 942.

    Raises:
        ValueError: `arch` is not spelled ``sm_NN`` or ``gfxNNN``.
    """
    # callers of the runtime may well write 90
    read = _read(str(arch))
    if read is None or read[1]:
        raise ValueError(f"expected an arch such as sm_90 or gfx942, got {arch!r}")
    return read[0]


def parse_image_arch(text: str) -> ImageArch:
    """Read ``sm_90a`` or ``gfx942``.

    Raises:
        ValueError: `text` is not spelled ``sm_NN``, ``sm_NNa``, ``sm_NNf`` or ``gfxNNN``.
    """
    read = _read(text)
    if read is None:
        raise ValueError(f"expected an image arch such as sm_90a or gfx942, got {text!r}")
    return ImageArch(*read)


def image_arch_of(arch: str) -> ImageArch:
    """Name the image that Triton makes for `arch`."""
    number = arch_number(arch)
    return ImageArch(number, "a" if number >= FIRST_EXACT and not is_gfx(number) else "")
