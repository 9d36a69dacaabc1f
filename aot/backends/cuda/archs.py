"""Names of the architectures that a build makes images for: a chip's, such as ``sm_90``, or a family's, ``sm_100f``.

A family's images hold the code that the chip of that number gets, and run on every chip of the family.
"""

from __future__ import annotations

from typing import Final

from nojit.runtime import target
from nojit.runtime.target import image_arch_of, parse_image_arch

__all__ = ["OLDEST", "arch_number", "chip_of", "chips_of", "family_of", "image_arch", "is_arch", "is_family"]

OLDEST: Final = 75
"""Number of the oldest arch that every supported version of Triton can build for: 75 stands for `sm_75`."""


def is_family(arch: str) -> bool:
    """Return whether an arch names a family of at least two chips: ``sm_100f``."""
    text = str(arch)
    if not text.endswith("f") or not target.is_arch(text[:-1]):
        return False
    return len(target.FAMILIES.get(parse_image_arch(text).number, ())) > 1


def chip_of(arch: str) -> str:
    """Return the arch of the chip whose code the images of an arch hold: ``sm_100`` for ``sm_100f``."""
    return str(arch).removesuffix("f")


def chips_of(arch: str) -> tuple[str, ...]:
    """Return the archs of the chips that run the images of an arch's family, by number; a chip's own arch alone."""
    if not is_family(arch):
        return (arch,)
    return tuple(f"sm_{number}" for number in sorted(target.FAMILIES[parse_image_arch(arch).number]))


def family_of(arch: str) -> str:
    """Return the largest family that a chip belongs to: ``sm_100f`` for ``sm_103``; empty if it belongs to none."""
    number = target.arch_number(chip_of(arch))
    names = [name for name, members in target.FAMILIES.items() if number in members and len(members) > 1]
    return f"sm_{min(names)}f" if names else ""


def is_arch(arch: str) -> bool:
    """Return whether an arch is a family, or is spelled ``sm_NN`` and not older than `OLDEST`."""
    return is_family(arch) or (target.is_arch(str(arch)) and OLDEST <= target.arch_number(arch) < target.GFX_FIRST)


def arch_number(arch: str) -> int:
    """Return the number of an arch: 100 for ``sm_100`` and for ``sm_100f``.

    Raises:
        ValueError: `arch` is not spelled ``sm_NN`` or ``sm_NNf``.
    """
    return target.arch_number(chip_of(arch))


def image_arch(arch: str) -> str:
    """Return the image arch of an arch: ``sm_90a`` for ``sm_90``, ``sm_100f`` for itself.

    Raises:
        ValueError: `arch` is not spelled ``sm_NN`` or ``sm_NNf``.
    """
    return str(parse_image_arch(arch) if is_family(arch) else image_arch_of(arch))
