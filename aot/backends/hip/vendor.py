"""Facts of AMD's GPUs and their images that need no Triton.

Implements `nojit.aot.backends.interface.Vendor`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nojit.aot.backends.hip import wheel_variants as WHEEL_VARIANTS  # noqa: N812 - a constant of the interface
from nojit.aot.backends.hip.archs import ARCHS, arch_number, facts_of, is_arch
from nojit.aot.backends.hip.options import OPTIONS
from nojit.aot.backends.hip.settings import KNOBS, LEFT_OUT, VARIABLES
from nojit.runtime.base.gpu_limits import THREADS_MAX

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

NAME: Final = "hip"
TRITON: Final = "amd"
EXPECTED: Final = f"{', '.join(ARCHS[:-1])} or {ARCHS[-1]}"
ASSEMBLER: Final = ""
IMAGE: Final = "hsaco"
CLASSIFIER: Final = "Environment :: GPU"
UNTRIED: Final = "never run on hardware: compiled, checked, and launched on a simulated driver"


def chip_of(arch: str) -> str:
    """Return the arch itself: nojit builds for no family of AMD's chips."""
    return arch


def chips_of(arch: str) -> tuple[str, ...]:
    """Return the arch itself, which is one chip's."""
    return (arch,)


def family_of(arch: str) -> str:  # noqa: ARG001 - the interface's
    """Return an empty text: nojit builds for no family of AMD's chips."""
    return ""


def target_of(arch: str) -> TargetInfo:
    """Return the target (backend, arch, image arch and warp size) of a bundle that is built for an arch.

    Raises:
        ValueError: `arch` is not one of `ARCHS`.
    """
    from nojit.runtime.bundle.format import TargetInfo

    return TargetInfo(NAME, arch, arch, facts_of(arch).warp_size)


def limits(arch: str) -> Limits:
    """Return the limits of a thread block on an arch: shared memory in bytes and vector registers."""
    from nojit.aot.backends.interface import Limits

    facts = facts_of(arch)
    return Limits(facts.shared_bytes, THREADS_MAX, facts.registers, facts.register_unit)


def device_name(arch: str) -> str:
    """Return the product name of a common GPU of an arch."""
    from nojit.runtime.recording.fake.properties import common_of

    return common_of(arch).name


def check_image(image: bytes, launch: Launch, image_arch: str, where: str) -> int:
    """Return a hsaco's vector registers per thread, after checking that it agrees with its launch facts; 0 if it names none.

    Raises:
        BundleError: the hsaco and the launch facts differ.
    """
    from nojit.runtime.bundle import cubin

    _, _, registers = cubin.check_launch(image, launch, image_arch, where)
    return registers


def code_of(image: bytes) -> dict[bytes, bytes]:
    """Return the section of a hsaco that holds instructions; the whole hsaco if its sections cannot be read."""
    from nojit.runtime.bundle import cubin
    from nojit.runtime.errors import BundleError

    try:
        sections = cubin.read_sections(image)
    except BundleError:
        return {b"": image}
    return {name: content for name, content in sections.items() if name == b".text"}


def opcodes_of(image: bytes) -> dict[bytes, Counter[int]]:  # noqa: ARG001 - the interface's
    """Return nothing: only images of a family are compared so."""
    return {}


def parse_driver(text: str) -> int:
    """Return a ROCm version as a number: 6040 for ``6.4``.

    Raises:
        ValueError: the text has another form.
    """
    parts = text.split(".")
    if not 1 <= len(parts) <= 2 or not all(part.isdecimal() for part in parts):
        raise ValueError(f"expected a ROCm version such as 6.4, got {text!r}")
    return int(parts[0]) * 1000 + (int(parts[1]) if len(parts) == 2 else 0) * 10


@contextlib.contextmanager
def pin(min_driver: int | None, assembler: Path | None) -> Iterator[None]:  # noqa: ARG001 - the interface's
    """Change nothing until the ``with`` block ends: there is one code generator, and ROCm loads older images.

    Args:
        min_driver: the oldest CUDA driver that must load the images, which says nothing of AMD's.
        assembler: always None, since `ASSEMBLER` names none.
    """
    yield


def backend() -> Backend:
    """Import and return AMD's part of the compiler, which imports Triton."""
    from nojit.aot.backends.hip import backend as module  # commands that read bundles need no Triton

    return module
