"""CUDA's part of the compiler: ptxas, Triton's backend for NVIDIA, and the simulated GPU that kernel sources see.

Implements `nojit.aot.backends.interface.Backend`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nojit.aot.backends.cuda.archs import OLDEST, arch_number, chip_of, image_arch, is_arch, is_family
from nojit.aot.backends.cuda.code import code_of
from nojit.aot.backends.cuda.ptxas import gpu_names
from nojit.aot.backends.device import Device, driver_of, install
from nojit.aot.backends.interface import Tool
from nojit.runtime.errors import CompileError
from nojit.runtime.target import FIRST_EXACT, PDL_SINCE, parse_image_arch, warp_threads
from triton import knobs
from triton._C.libtriton import getenv
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia
from triton.backends.nvidia.compiler import CUDABackend, CUDAOptions, get_ptxas
from triton.backends.nvidia.driver import CudaDriver
from triton.experimental.gluon.language import NVMMASharedLayout

__all__ = [
    "DEFAULTS",
    "IGNORED",
    "OPTIONS",
    "archs",
    "assembling",
    "begin",
    "driver",
    "folder",
    "instrumentation",
    "logging",
    "min_driver",
    "overlaps",
    "shared_layout",
    "spill_bytes",
    "target",
    "tools",
]

DEFAULTS: Final[Mapping[str, Any]] = {}
IGNORED: Final = frozenset({"waves_per_eu"})
OPTIONS: Final = frozenset(CUDAOptions.__dataclass_fields__)

# the knobs that choose a ptxas
_PTXAS: Final = frozenset({"ptxas", "ptxas_blackwell"})


def folder() -> Path:
    """Return the folder of Triton's backend for NVIDIA. Its files are inputs of every image."""
    return Path(inspect.getfile(CUDABackend)).parent.resolve()


def tools(arch: str) -> dict[str, Tool]:
    """Return the ptxas that assembles for `arch`, by name.

    Raises:
        CompileError: a variable or knob names a ptxas that cannot be used.
    """
    tool = _ptxas(arch)
    return {"ptxas": Tool(tool.version, tool.path)}


def min_driver(arch: str) -> int:
    """Return the oldest CUDA version whose driver loads images for `arch` (13000 for 13.0).

    A driver loads images of all minor versions of its CUDA major version. Drivers of older major versions do not load
    them.
    """
    return int(_ptxas(arch).version.split(".")[0]) * 1000


def archs() -> tuple[str, ...]:
    """Return the archs that this toolchain can build, sorted by number, each family after the chip of its number.

    Empty if a ptxas does not list its targets.
    """
    named = {number: gpu_names(_ptxas(f"sm_{number}").path) for number in (OLDEST, FIRST_EXACT)}
    if not all(named.values()):
        return ()
    numbers = {image.number for names in named.values() for image in names}
    return tuple(
        arch
        for number in sorted(numbers)
        for arch in (f"sm_{number}", f"sm_{number}f")
        # Triton has one ptxas for older archs and one from FIRST_EXACT on
        if is_arch(arch)
        and parse_image_arch(image_arch(arch)) in named[FIRST_EXACT if number >= FIRST_EXACT else OLDEST]
    )


def _ptxas(arch: str) -> knobs.NvidiaTool:
    """Return the ptxas that assembles for `arch`.

    Raises:
        CompileError: a variable or knob names a ptxas that cannot be used. Triton would silently use its own instead.
    """
    tool = get_ptxas(arch_number(arch))
    for name, described in knobs.nvidia.knob_descriptors.items():
        given = vars(knobs.nvidia).get(name) or getenv(described.key)
        if name in _PTXAS and given and given != tool.path == getattr(knobs.nvidia, name).path:
            raise CompileError(f"expected {described.key} to name a ptxas: change or unset it", got="none", where=given)
    return tool


def target(arch: str) -> GPUTarget:
    """Return Triton's target object for an arch."""
    # an integer: Triton before 3.9 does not take a string
    return GPUTarget("cuda", arch_number(arch), warp_threads(arch_number(arch)))


def begin(arch: str) -> tuple[Device, Any]:
    """Make a simulated GPU of an arch answer the queries of this process about its GPU.

    Returns the simulated GPU, and the driver object to give to Triton.
    """
    device = Device(chip_of(arch), _ptxas(f"sm_{OLDEST}").version)
    install(device)
    return device, _driver(device)


def driver(arch: str) -> Any:
    """Return a driver object for Triton that reports a GPU of an arch."""
    return _driver(Device(chip_of(arch), ""))


def _driver(device: Device) -> Any:
    return driver_of(device, CudaDriver, lambda: target(device.arch))


def instrumentation() -> object:
    """Return Triton's instrumentation hook, which changes kernels in this process; a false value if there is none."""
    # before Triton 3.8, the backend holds the instrumentation
    return getattr(CUDABackend, "instrumentation", None) or getattr(
        sys.modules.get("triton._instrumentation"), "_callbacks", None
    )


@contextlib.contextmanager
def logging() -> Iterator[None]:
    """Make ptxas write its statistics to standard output until the block ends."""
    with knobs.nvidia.scope():
        knobs.nvidia.dump_ptxas_log = True
        yield


@contextlib.contextmanager
def assembling(arch: str) -> Iterator[None]:
    """Make Triton assemble images for a family until the ``with`` block ends; nothing changes for a chip's own arch.

    Each PTX is assembled for the chip, too. `CompileError` is raised where the code for the family differs, since then
    its kernel would not be the one that was tuned and tested.
    """
    if not is_family(arch):
        yield
        return
    own, assemble = nvidia.sm_arch_from_capability, CUDABackend.make_cubin

    def make_cubin(self: Any, src: str, *rest: Any) -> bytes:
        chip = assemble(self, src, *rest)
        nvidia.sm_arch_from_capability = lambda _: arch
        try:
            # spills are counted once
            with contextlib.redirect_stdout(io.StringIO()):
                image: bytes = assemble(self, re.sub(r"(?m)^\.target sm_\w+", f".target {arch}", src), *rest)
        finally:
            nvidia.sm_arch_from_capability = own
        if code_of(image) != code_of(chip):
            what = f"expected the code for {arch} to be that for {image_arch(chip_of(arch))}: build this kernel for each chip"
            raise CompileError(what, got="other instructions")
        return image

    CUDABackend.make_cubin = make_cubin
    try:
        yield
    finally:
        CUDABackend.make_cubin = assemble


def spill_bytes(log: str, image: bytes) -> int:  # noqa: ARG001 - the interface's
    """Return the number of spilled bytes per thread from the text output of ptxas; the image does not tell."""
    return sum(int(number) for number in re.findall(r"(\d+) bytes spill stores", log))


def shared_layout(block: Sequence[int], element: Any, given: Mapping[str, Any]) -> Any:
    """Return Gluon's default shared-memory layout for a descriptor's block, with the values in `given` replaced."""
    settings = {name: value for name, value in given.items() if name != "swizzle_byte_width"}
    default = NVMMASharedLayout.get_default_for(list(block), element, **settings)
    return dataclasses.replace(default, **given)


def overlaps(arch: str) -> bool:
    """Return whether an arch has instructions that start the next kernel early and wait for the previous kernel."""
    return arch_number(arch) >= PDL_SINCE
