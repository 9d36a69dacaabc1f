"""Limits of NVIDIA's GPUs: the oldest arch, and sizes of a block of threads. Pure."""

from __future__ import annotations

from typing import Final

from nojit.runtime.recording.fake.properties import shared_bytes_max

__all__ = ["OLDEST", "REGISTERS_MAX", "REGISTER_UNIT", "THREADS_MAX", "shared_bytes_max"]

OLDEST: Final = 75
"""Number of the oldest arch that every supported version of Triton can build for: 75 stands for `sm_75`."""

THREADS_MAX: Final = 1024
REGISTERS_MAX: Final = 65536
REGISTER_UNIT: Final = 8
"""Unit in which the hardware allocates the registers of a thread: the number is rounded up to a multiple of it."""
