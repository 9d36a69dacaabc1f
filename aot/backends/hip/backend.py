"""AMD's part of the compiler: Triton's backend for AMD, its code generator, and the simulated GPU that kernel sources see.

Implements `nojit.aot.backends.interface.Backend`.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import triton
from nojit.aot.backends.device import Device, driver_of, install
from nojit.aot.backends.hip.archs import ARCHS, facts_of
from nojit.aot.backends.interface import Tool
from nojit.runtime.errors import CompileError
from nojit.runtime.target import spell_cuda
from triton.backends.amd import compiler as amd
from triton.backends.amd.compiler import HIPBackend, HIPOptions
from triton.backends.amd.driver import HIPDriver
from triton.backends.compiler import GPUTarget

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

OPTIONS: Final = frozenset(HIPOptions.__dataclass_fields__)
# requests that a launch overlap the previous one, and limits of the schedule: kernels compute the same without
IGNORED: Final = frozenset({"launch_pdl", "maxnreg"})
# the build's default, tf32, allows a kernel less precision. Triton's own default for AMD's GPUs takes none of it: most of them refuse it
DEFAULTS: Final[Mapping[str, Any]] = {"default_dot_input_precision": "ieee"}

_REGISTER_BYTES: Final = 4
# libraries of device functions that kernels are linked with
_DEVICE_LIBRARIES: Final = ("ocml", "ockl")


def folder() -> Path:
    """Return the folder of Triton's backend for AMD. Its files are inputs of every image."""
    return Path(inspect.getfile(HIPBackend)).parent.resolve()


def tools(arch: str) -> dict[str, Tool]:  # noqa: ARG001 - the interface's: one generator makes the code of every arch
    """Return the code generator and the device libraries, by name.

    Raises:
        CompileError: this Triton has no code generator of its own for AMD's GPUs, as Triton before 3.9.
    """
    if not hasattr(amd, "get_amd_codegen_path"):
        what = "expected Triton 3.9 or later to build for AMD's GPUs: pip install --upgrade triton"
        raise CompileError(what, got=triton.__version__)
    found = {"amd-codegen": Tool(amd.get_amd_codegen_revision(), amd.get_amd_codegen_path())}
    return found | {
        f"amd-{name}": Tool(triton.__version__, str(folder() / "lib" / f"{name}.bc")) for name in _DEVICE_LIBRARIES
    }


def min_driver(arch: str) -> int:
    """Return the first ROCm that supports an arch: 6040 for 6.4."""
    return facts_of(arch).min_driver


def archs() -> tuple[str, ...]:
    """Return the archs that the tools can build, in order; empty if this Triton cannot build for AMD's GPUs."""
    return ARCHS if hasattr(amd, "get_amd_codegen_path") else ()


def target(arch: str) -> GPUTarget:
    """Return Triton's target object for an arch."""
    return GPUTarget("hip", arch, facts_of(arch).warp_size)


def begin(arch: str) -> tuple[Device, Any]:
    """Make a simulated GPU of an arch answer the queries of this process about its GPU.

    Returns the simulated GPU, and the driver object to give to Triton.
    """
    device = Device(arch, spell_cuda(min_driver(arch)))
    install(device)
    return device, _driver(device)


def driver(arch: str) -> Any:
    """Return a driver object for Triton that reports a GPU of an arch."""
    return _driver(Device(arch, ""))


def _driver(device: Device) -> Any:
    return driver_of(device, HIPDriver, lambda: target(device.arch))


def instrumentation() -> object:
    """Return Triton's instrumentation hook, which changes kernels in this process; a false value if there is none."""
    # before Triton 3.8, the backend holds the instrumentation
    return getattr(HIPBackend, "instrumentation", None) or getattr(
        sys.modules.get("triton._instrumentation"), "_callbacks", None
    )


@contextlib.contextmanager
def logging() -> Iterator[None]:
    """Change nothing until the block ends: images themselves name their spills, in `spill_bytes`."""
    yield


@contextlib.contextmanager
def assembling(arch: str) -> Iterator[None]:  # noqa: ARG001 - the interface's
    """Change nothing until the block ends: each arch is that of one chip."""
    yield


def spill_bytes(log: str, image: bytes) -> int:  # noqa: ARG001 - the interface's
    """Return the bytes of spilled vector registers per thread, which a hsaco's metadata names; the text output does not tell."""
    found = re.search(rb"\.vgpr_spill_count(?:([\x00-\x7f])|\xcc(.)|\xcd(..)|\xce(....))", image, re.DOTALL)
    number = next((part for part in found.groups() if part is not None), b"") if found else b""
    return int.from_bytes(number, "big") * _REGISTER_BYTES


def shared_layout(block: Sequence[int], element: Any, given: Mapping[str, Any]) -> Any:
    """Refuse a descriptor: no supported arch of AMD's has tensor maps.

    Args:
        block: dimensions of the block.
        element: Triton's dtype of its elements.
        given: layout settings of the descriptor, by Triton's names.

    Raises:
        CompileError: always.
    """
    raise CompileError(
        "expected a Gluon kernel without tensor descriptors on AMD's GPUs", got=f"{element}{[*block]} {dict(given)}"
    )


def overlaps(arch: str) -> bool:  # noqa: ARG001 - the interface's
    """Return False: AMD's GPUs have no programmatic dependent launch."""
    return False
