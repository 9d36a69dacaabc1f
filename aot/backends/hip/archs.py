"""AMD's architectures that a build makes images for, and what their hardware allows a block. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from nojit.runtime.base.gpu_limits import shared_bytes_max
from nojit.runtime.target import warp_threads

__all__ = ["ARCHS", "Arch", "arch_number", "facts_of", "is_arch"]


class Arch(NamedTuple):
    """Facts of one arch."""

    number: int
    """The digits of its name."""
    registers: int
    """Vector registers of a compute unit, counted for each thread."""
    register_unit: int
    """Unit in which the hardware allocates the vector registers of a thread."""
    min_driver: int
    """The first ROCm whose release notes list the arch: 6040 for 6.4."""

    @property
    def warp_size(self) -> int:
        """Threads of a warp, which AMD calls wavefront, in Triton's code for it."""
        return warp_threads(self.number)

    @property
    def shared_bytes(self) -> int | None:
        """Maximum shared memory of a block, which AMD calls LDS, in bytes."""
        return shared_bytes_max(f"gfx{self.number}")


# registers: LLVM, AMDGPUBaseInfo.cpp, getTotalNumVGPRs and getVGPRAllocGranule: 512 of 64 threads (with accumulators) on each of
# 4 SIMDs, and 1,536 of 32 threads
_ARCHS: Final = (
    Arch(942, 4 * 512 * 64, 8, 6000),
    Arch(950, 4 * 512 * 64, 8, 7000),
    Arch(1201, 4 * 1536 * 32, 24, 6040),
)
_BY_NAME: Final = {f"gfx{arch.number}": arch for arch in _ARCHS}
ARCHS: Final = tuple(_BY_NAME)


def is_arch(arch: str) -> bool:
    """Return whether an arch is one of `ARCHS`."""
    return str(arch) in _BY_NAME


def facts_of(arch: str) -> Arch:
    """Return the facts of an arch.

    Raises:
        ValueError: `arch` is not one of `ARCHS`.
    """
    if not is_arch(arch):
        raise ValueError(f"expected {', '.join(ARCHS[:-1])} or {ARCHS[-1]}, got {arch!r}")
    return _BY_NAME[str(arch)]


def arch_number(arch: str) -> int:
    """Return the number of an arch: 942 for ``gfx942``.

    Raises:
        ValueError: `arch` is not one of `ARCHS`.
    """
    return facts_of(arch).number
