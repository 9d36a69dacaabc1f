"""Which architectures can be built for. Pure; names and families are `nojit.runtime.target`'s."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nojit.runtime.errors import ManifestError, did_you_mean
from nojit.runtime.format import TargetInfo
from nojit.runtime.target import ARCHS, arch_number, image_arch_of, is_arch

__all__ = ["ARCHS", "OLDEST", "check_arch", "check_assembled", "check_known", "shared_bytes_max", "target_of"]

_WARP_SIZE = 32
OLDEST = 75
"""The oldest that a supported Triton compiles for."""
# KiB that a block can ask for (CUDA Programming Guide 13.4, "Memory Information per Compute Capability"); 8.8 is not in it
_SHARED_KIB = {
    75: 64,
    80: 163,
    86: 99,
    87: 163,
    89: 99,
    90: 227,
    100: 227,
    101: 227,
    103: 227,
    107: 327,
    110: 227,
    120: 99,
    121: 99,
}


def check_arch(arch: str, where: str) -> str:
    """Return `arch` if it is spelled as one is; whether it can be built for is for the toolchain to say.

    Raises:
        ManifestError: it is none.
    """
    if not is_arch(arch) or arch_number(arch) < OLDEST:
        what = f"expected an arch such as sm_90, from sm_{OLDEST} up"
        raise ManifestError(what, got=f"{arch!r}{did_you_mean(arch, ARCHS)}", where=where)
    return arch


def check_known(arch: str, known: Collection[str], where: str) -> None:
    """Refuse an arch that is none of those that there are.

    Raises:
        ManifestError: it is not among them.
    """
    if arch not in known:
        listed = sorted(known, key=arch_number)
        what = f"expected an arch of {', '.join(listed)}"
        raise ManifestError(what, got=f"{arch!r}{did_you_mean(arch, tuple(listed))}", where=where)


def check_assembled(arch: str, assembled: Sequence[str], where: str) -> None:
    """Refuse an arch that a toolchain cannot assemble.

    Args:
        arch: spelled right.
        assembled: what the toolchain says that it can; empty if it does not say.
        where: who asks for the arch.

    Raises:
        ManifestError: it is not among them.
    """
    if assembled and arch not in assembled:
        what = f"expected an arch that this toolchain assembles ({', '.join(assembled)}; --ptxas takes another ptxas)"
        raise ManifestError(what, got=f"{arch!r}{did_you_mean(arch, tuple(assembled))}", where=where)


def target_of(arch: str) -> TargetInfo:
    """Describe the target of a bundle for `arch`."""
    arch_number(arch)
    return TargetInfo("cuda", arch, str(image_arch_of(arch)), _WARP_SIZE)


def shared_bytes_max(arch: str) -> int | None:
    """Return the most shared memory that a block can have, in bytes; None where that is not known."""
    kib = _SHARED_KIB.get(arch_number(arch))
    return None if kib is None else kib * 1024
