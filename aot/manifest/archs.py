"""Checks of the names of GPU architectures (archs, such as `sm_90`) in manifests. Pure.

`nojit.runtime.target` defines the names and which archs an image runs on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nojit.runtime.errors import ManifestError, did_you_mean
from nojit.runtime.format import TargetInfo
from nojit.runtime.target import ARCHS, arch_number, image_arch_of, is_arch

__all__ = ["ARCHS", "OLDEST", "check_arch", "check_assembled", "check_known", "target_of"]

_WARP_SIZE = 32
OLDEST = 75
"""Number of the oldest arch that every supported version of Triton can build for: 75 stands for `sm_75`."""


def check_arch(arch: str, where: str) -> str:
    """Return `arch` unchanged if it is a valid name of an arch that is not older than `OLDEST`.

    The installed toolchain may still be unable to build for this arch: `check_assembled` checks that.

    Raises:
        ManifestError: the name is invalid, or the arch is older than `OLDEST`.
    """
    if not is_arch(arch) or arch_number(arch) < OLDEST:
        what = f"expected an arch such as sm_90, from sm_{OLDEST} up"
        raise ManifestError(what, got=f"{arch!r}{did_you_mean(arch, ARCHS)}", where=where)
    return arch


def check_known(arch: str, known: Collection[str], where: str) -> None:
    """Check that `arch` is one of the archs in `known`.

    Raises:
        ManifestError: the arch is not in `known`.
    """
    if arch not in known:
        listed = sorted(known, key=arch_number)
        what = f"expected an arch of {', '.join(listed)}"
        raise ManifestError(what, got=f"{arch!r}{did_you_mean(arch, tuple(listed))}", where=where)


def check_assembled(arch: str, assembled: Sequence[str], where: str) -> None:
    """Check that the installed ptxas can assemble code for an arch.

    Args:
        arch: a valid arch.
        assembled: the archs that the installed ptxas assembles for; empty if unknown, and then every arch passes.
        where: the place that names the arch, for messages.

    Raises:
        ManifestError: the arch is not in `assembled`.
    """
    if assembled and arch not in assembled:
        what = f"expected an arch that this toolchain assembles ({', '.join(assembled)}; --ptxas takes another ptxas)"
        raise ManifestError(what, got=f"{arch!r}{did_you_mean(arch, tuple(assembled))}", where=where)


def target_of(arch: str) -> TargetInfo:
    """Return the target (backend, arch and warp size) of a bundle that is built for `arch`."""
    arch_number(arch)
    return TargetInfo("cuda", arch, str(image_arch_of(arch)), _WARP_SIZE)
