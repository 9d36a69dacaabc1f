"""Checks of the names of GPU architectures (archs, such as `sm_90`) in manifests. Pure.

The packages of vendors in `nojit.aot.backends` define the names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from nojit.aot.backends.registry import expected, vendor_of, vendors
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import ManifestError

if TYPE_CHECKING:
    from nojit.runtime.bundle.format import TargetInfo

__all__ = [
    "arch_number",
    "arch_order",
    "check_arch",
    "check_assembled",
    "check_known",
    "check_target",
    "chip_of",
    "chips_of",
    "family_of",
    "known_archs",
    "target_of",
]


def known_archs() -> tuple[str, ...]:
    """Return the known archs of every vendor. The installed toolchain may know more."""
    return tuple(arch for vendor in vendors() for arch in vendor.ARCHS)


def check_arch(arch: str, where: str) -> str:
    """Return `arch` unchanged if it is a valid name of a chip's arch that the build supports.

    The installed toolchain may still be unable to build for this arch: `check_assembled` checks that.

    Raises:
        ManifestError: the name is invalid, is that of a family, or the arch is too old.
    """
    if chip_of(check_target(arch, where)) != arch:
        what = f"expected the arch of a chip, such as {chip_of(arch)}: only builds take the arch of a family"
        raise ManifestError(what, got=repr(arch), where=where)
    return arch


def check_target(arch: str, where: str) -> str:
    """Return `arch` unchanged if images can be built for it: it is the arch of a chip, as `check_arch` has it, or of a family.

    Raises:
        ManifestError: the name is invalid, or the arch is too old.
    """
    if not any(vendor.is_arch(arch) for vendor in vendors()):
        got = f"{arch!r}{did_you_mean(arch, known_archs())}"
        raise ManifestError(f"expected {expected()}", got=got, where=where)
    return arch


def arch_number(arch: str) -> int:
    """Return the number of an arch, the `arch` of expressions: 90 for `sm_90`. Archs of a vendor sort by it.

    Raises:
        ValueError: `arch` is not valid.
    """
    return vendor_of(arch).arch_number(arch)


def arch_order(arch: str) -> tuple[int, str]:
    """Return what archs sort by: their number, and a chip before its family.

    Raises:
        ValueError: `arch` is not valid.
    """
    return arch_number(arch), arch


def chip_of(arch: str) -> str:
    """Return the arch of the chip whose code the images of an arch hold: `sm_100` for the family `sm_100f`.

    Raises:
        ValueError: `arch` is not valid.
    """
    return vendor_of(arch).chip_of(arch)


def chips_of(arch: str) -> tuple[str, ...]:
    """Return the archs of the chips that an arch in a manifest stands for: each of a family, or the chip itself.

    Raises:
        ValueError: `arch` is not valid.
    """
    return tuple(vendor_of(arch).chips_of(arch))


def family_of(arch: str) -> str:
    """Return the largest family of a chip, whose images all its chips run: ``sm_100f`` for ``sm_103``; empty without one.

    Raises:
        ValueError: `arch` is not valid.
    """
    return vendor_of(arch).family_of(arch)


def check_known(arch: str, known: Collection[str], where: str) -> None:
    """Check that `arch` is one of the archs in `known`.

    Raises:
        ManifestError: the arch is not in `known`.
    """
    if arch not in known:
        listed = sorted(known, key=arch_order)
        what = f"expected an arch of {', '.join(listed)}"
        raise ManifestError(what, got=f"{arch!r}{did_you_mean(arch, tuple(listed))}", where=where)


def check_assembled(arch: str, assembled: Sequence[str], where: str) -> None:
    """Check that the installed toolchain can assemble code for an arch.

    Args:
        arch: a valid arch.
        assembled: the archs that the installed toolchain assembles for; empty if unknown, and then every arch passes.
        where: the place that names the arch, for messages.

    Raises:
        ManifestError: the arch is not in `assembled`.
    """
    if assembled and arch not in assembled:
        name = vendor_of(arch).ASSEMBLER
        more = f"; --{name} takes another {name}" if name else ""
        what = f"expected an arch that this toolchain assembles ({', '.join(assembled)}{more})"
        raise ManifestError(what, got=f"{arch!r}{did_you_mean(arch, tuple(assembled))}", where=where)


def target_of(arch: str) -> TargetInfo:
    """Return the target (backend, arch and warp size) of a bundle that is built for `arch`.

    Raises:
        ValueError: `arch` is not valid.
    """
    return vendor_of(arch).target_of(arch)
