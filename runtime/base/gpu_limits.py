"""Limits of GPUs: threads, registers and shared memory of a block and a multiprocessor. Pure."""

from __future__ import annotations

from typing import Final

from nojit.runtime.target import arch_number

__all__ = ["DEFAULT_SHARED_BYTES", "REGISTERS_MAX", "THREADS_MAX", "resident_threads_max", "shared_bytes_max"]

THREADS_MAX: Final = 1024
"""Maximum threads of a block."""
REGISTERS_MAX: Final = 65536
"""32-bit registers of a multiprocessor of NVIDIA's, and maximum registers of a block there."""
DEFAULT_SHARED_BYTES: Final = 48 * 1024
"""Maximum shared memory of a block that does not opt in to more, on NVIDIA's GPUs."""

# 1536 for other archs. Source: CUDA programming guide, "technical specifications per compute capability"
_RESIDENT_THREADS = {75: 1024, 80: 2048, 90: 2048, 100: 2048, 103: 2048, 942: 2048, 950: 2048, 1201: 2048}
# in KiB (CUDA Programming Guide 13.4, "Memory Information per Compute Capability", which omits 8.8); of AMD's, what Triton's
# TargetInfo::getSharedMemorySize allows
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
    942: 64,
    950: 160,
    1201: 64,
}


def resident_threads_max(arch: str) -> int:
    """Return the maximum threads of a multiprocessor, over all its blocks."""
    return _RESIDENT_THREADS.get(arch_number(arch), 1536)


def shared_bytes_max(arch: str) -> int | None:
    """Return the maximum shared memory of a block in bytes; None for an unknown arch."""
    kib = _SHARED_KIB.get(arch_number(arch))
    return None if kib is None else kib * 1024
