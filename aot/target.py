"""Which architectures can be built for. Pure; names and families are `nojit.runtime.target`'s."""

from __future__ import annotations

from nojit.runtime.errors import ManifestError, did_you_mean
from nojit.runtime.format import TargetInfo
from nojit.runtime.target import ARCHS, arch_number, image_arch_of

__all__ = ["ARCHS", "check_arch", "shared_bytes_max", "target_of"]

_WARP_SIZE = 32
# KiB that a block can ask for (CUDA programming guide, "technical specifications per compute capability")
_SHARED_KIB = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99, 121: 99}


def check_arch(arch: str, where: str) -> str:
    """Return `arch` if it can be built for.

    Raises:
        ManifestError: it cannot; the message lists those that can.
    """
    if arch not in ARCHS:
        raise ManifestError(
            f"expected an arch of {', '.join(ARCHS)}", got=f"{arch!r}{did_you_mean(arch, ARCHS)}", where=where
        )
    return arch


def target_of(arch: str) -> TargetInfo:
    """Describe the target of a bundle for `arch`."""
    arch_number(arch)
    return TargetInfo("cuda", arch, str(image_arch_of(arch)), _WARP_SIZE)


def shared_bytes_max(arch: str) -> int:
    """Return the most shared memory that a block can have, in bytes."""
    return _SHARED_KIB[arch_number(arch)] * 1024
