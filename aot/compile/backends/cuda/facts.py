"""Facts of NVIDIA's GPUs and their images that need no Triton. Pure.

Implements `nojit.aot.compile.backends.interface.Facts`.
"""

from __future__ import annotations

from nojit.aot.compile.backends.cuda.device import common_of
from nojit.aot.compile.backends.cuda.limits import REGISTER_UNIT, REGISTERS_MAX, THREADS_MAX, shared_bytes_max
from nojit.aot.compile.backends.interface import Limits
from nojit.aot.manifest.archs import target_of
from nojit.runtime import cubin
from nojit.runtime.errors import BundleError, CompileError
from nojit.runtime.table import Launch

__all__ = ["checked_registers", "device_name", "limits"]


def limits(arch: str) -> Limits:
    """Return the limits of a thread block on an arch: shared memory in bytes and registers."""
    return Limits(shared_bytes_max(arch), THREADS_MAX, REGISTERS_MAX, REGISTER_UNIT)


def device_name(arch: str) -> str:
    """Return the product name of a common GPU of an arch."""
    return common_of(arch).name


def checked_registers(image: bytes, launch: Launch, arch: str, where: str) -> int:
    """Return an image's registers per thread, after checking that the image agrees with its launch facts.

    Raises:
        CompileError: the image and the launch facts differ.
    """
    try:
        _, _, registers = cubin.check_launch(image, launch, target_of(arch).image_arch, where)
    except BundleError as error:
        raise CompileError(
            "expected an image that agrees with its launch facts", got=error.finding(), where=where
        ) from error
    return registers
