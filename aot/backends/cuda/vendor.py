"""Facts of NVIDIA's GPUs and their images that need no Triton.

Implements `nojit.aot.backends.interface.Vendor`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nojit.aot.backends.cuda import wheel_variants as WHEEL_VARIANTS  # noqa: N812 - a constant of the interface
from nojit.aot.backends.cuda.archs import OLDEST, arch_number, chip_of, chips_of, family_of, image_arch, is_arch
from nojit.aot.backends.cuda.code import code_of, opcodes_of
from nojit.aot.backends.cuda.options import OPTIONS
from nojit.aot.backends.cuda.settings import KNOBS, LEFT_OUT, VARIABLES
from nojit.runtime.base.gpu_limits import REGISTERS_MAX, THREADS_MAX, shared_bytes_max
from nojit.runtime.target import ARCHS, warp_threads

if TYPE_CHECKING:
    from nojit.aot.backends.interface import Backend, Limits
    from nojit.runtime.bundle.format import TargetInfo
    from nojit.runtime.table.parts import Launch

__all__ = [
    "ARCHS",
    "ASSEMBLER",
    "CLASSIFIER",
    "EXPECTED",
    "IMAGE",
    "KNOBS",
    "LEFT_OUT",
    "NAME",
    "OPTIONS",
    "TRITON",
    "UNTRIED",
    "VARIABLES",
    "WHEEL_VARIANTS",
    "arch_number",
    "backend",
    "check_image",
    "chip_of",
    "chips_of",
    "code_of",
    "device_name",
    "family_of",
    "is_arch",
    "limits",
    "opcodes_of",
    "parse_driver",
    "pin",
    "target_of",
]

NAME: Final = "cuda"
TRITON: Final = "nvidia"
EXPECTED: Final = f"an arch such as sm_90, from sm_{OLDEST} up"
ASSEMBLER: Final = "ptxas"
UNTRIED: Final = ""
IMAGE: Final = "cubin"
CLASSIFIER: Final = "Environment :: GPU :: NVIDIA CUDA"

# the hardware allocates the registers of a thread in multiples of it
_REGISTER_UNIT: Final = 8


def target_of(arch: str) -> TargetInfo:
    """Return the target (backend, arch, image arch and warp size) of a bundle that is built for an arch.

    Raises:
        ValueError: `arch` is not spelled ``sm_NN`` or ``sm_NNf``.
    """
    from nojit.runtime.bundle.format import TargetInfo

    return TargetInfo(NAME, chip_of(arch), image_arch(arch), warp_threads(arch_number(arch)))


def limits(arch: str) -> Limits:
    """Return the limits of a thread block on an arch: shared memory in bytes and registers."""
    from nojit.aot.backends.interface import Limits

    return Limits(shared_bytes_max(chip_of(arch)), THREADS_MAX, REGISTERS_MAX, _REGISTER_UNIT)


def device_name(arch: str) -> str:
    """Return the product name of a common GPU of an arch."""
    from nojit.runtime.recording.fake.properties import common_of

    return common_of(chip_of(arch)).name


def check_image(image: bytes, launch: Launch, image_arch: str, where: str) -> int:
    """Return a cubin's registers per thread, after checking that it agrees with its launch facts; 0 if it names none.

    Raises:
        BundleError: the cubin and the launch facts differ.
    """
    from nojit.runtime.bundle import cubin

    _, _, registers = cubin.check_launch(image, launch, image_arch, where)
    return registers


def parse_driver(text: str) -> int:
    """Return a CUDA version as a number: 12040 for ``12.4``, 12000 for ``12``.

    Raises:
        ValueError: the text has another form.
    """
    from nojit.aot.backends.cuda.ptxas import parse_cuda  # rarely needed, and it imports subprocess

    return parse_cuda(text)


def pin(min_driver: int | None, assembler: Path | None) -> AbstractContextManager[None]:
    """Make this process and its children use a certain ptxas until the ``with`` block ends.

    `min_driver`: oldest driver that must load the images, as a CUDA version: 12040 for 12.4.

    Raises:
        CompileError: no ptxas is old enough.
    """
    from nojit.aot.backends.cuda import ptxas

    return ptxas.pin(min_driver, assembler)


def backend() -> Backend:
    """Import and return CUDA's part of the compiler, which imports Triton."""
    from nojit.aot.backends.cuda import backend as module  # commands that read bundles need no Triton

    return module
