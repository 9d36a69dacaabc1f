"""Checks of archs to build for. Pure; names and families are in `nojit.runtime.target`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nojit.runtime.errors import ManifestError, did_you_mean
from nojit.runtime.format import TargetInfo
from nojit.runtime.target import ARCHS, arch_number, image_arch_of, is_arch

__all__ = ["ARCHS", "OLDEST", "check_arch", "check_assembled", "check_known", "target_of"]

_WARP_SIZE = 32
OLDEST = 75
"""Oldest arch of the supported versions of Triton, as a number."""


def check_arch(arch: str, where: str) -> str:
    """Return `arch` if it is a valid name of an arch. The toolchain may still be unable to build for it.

    Raises:
        ManifestError: the name is invalid, or the arch is older than `OLDEST`.
    """
    if not is_arch(arch) or arch_number(arch) < OLDEST:
        what = f"expected an arch such as sm_90, from sm_{OLDEST} up"
        raise ManifestError(what, got=f"{arch!r}{did_you_mean(arch, ARCHS)}", where=where)
    return arch


def check_known(arch: str, known: Collection[str], where: str) -> None:
    """Check that an arch is a known one.

    Raises:
        ManifestError: the arch is not in `known`.
    """
    if arch not in known:
        listed = sorted(known, key=arch_number)
        what = f"expected an arch of {', '.join(listed)}"
        raise ManifestError(what, got=f"{arch!r}{did_you_mean(arch, tuple(listed))}", where=where)


def check_assembled(arch: str, assembled: Sequence[str], where: str) -> None:
    """Check that the toolchain can assemble for an arch.

    Args:
        arch: a valid arch.
        assembled: the archs that the toolchain assembles for; empty if unknown.
        where: the place that names the arch, for messages.

    Raises:
        ManifestError: the arch is not in `assembled`.
    """
    if assembled and arch not in assembled:
        what = f"expected an arch that this toolchain assembles ({', '.join(assembled)}; --ptxas takes another ptxas)"
        raise ManifestError(what, got=f"{arch!r}{did_you_mean(arch, tuple(assembled))}", where=where)


def target_of(arch: str) -> TargetInfo:
    """Return the target of a bundle for `arch`."""
    arch_number(arch)
    return TargetInfo("cuda", arch, str(image_arch_of(arch)), _WARP_SIZE)
