"""Limits of NVIDIA's GPUs: the oldest arch, and sizes of a block of threads. Pure."""

from __future__ import annotations

from typing import Final

from nojit.runtime.target import arch_number

__all__ = ["OLDEST", "REGISTERS_MAX", "REGISTER_UNIT", "THREADS_MAX", "WARP_SIZE", "shared_bytes_max"]

OLDEST: Final = 75
"""Number of the oldest arch that every supported version of Triton can build for: 75 stands for `sm_75`."""
WARP_SIZE: Final = 32

THREADS_MAX: Final = 1024
REGISTERS_MAX: Final = 65536
REGISTER_UNIT: Final = 8
"""Unit in which the hardware allocates the registers of a thread: the number is rounded up to a multiple of it."""
# maximum shared memory of a block in KiB (CUDA Programming Guide 13.4, "Memory Information per Compute Capability", which
# omits 8.8)
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


def shared_bytes_max(arch: str) -> int | None:
    """Return the maximum shared memory of a thread block in bytes; None for an unknown arch."""
    kib = _SHARED_KIB.get(arch_number(arch))
    return None if kib is None else kib * 1024
