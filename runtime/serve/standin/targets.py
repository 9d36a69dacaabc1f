"""Targets, backends and compiled kernels: names of a compiler that the stand-in lacks."""

from __future__ import annotations

import base64
import enum
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from nojit.runtime.serve.standin.callbacks import MissingError, recorded
from nojit.runtime.serve.standin.registry import exported

__all__ = ["CompiledKernel", "GPUTarget", "make_backend", "triton_key"]


@exported("triton.backends.compiler")
@dataclass(frozen=True)
class GPUTarget:
    """A GPU to compile for.

    Attributes:
        backend: ``cuda`` or ``hip``.
        arch: 90 for a capability of 9.0; a name for ``hip``.
        warp_size: threads of a warp.
    """

    backend: str
    arch: int | str
    warp_size: int


@exported("triton.backends.compiler")
class Language(enum.Enum):
    """The language of a kernel."""

    TRITON = 0
    GLUON = 1


@exported("triton.backends.compiler")
class BaseBackend:
    """Base of backends."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target
        if not self.supports_target(target):
            raise AssertionError

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """Say whether the backend compiles for a target."""
        raise NotImplementedError


_OPTIONS: Final = {
    "num_warps": 4,
    "num_ctas": 1,
    "num_stages": 3,
    "warp_size": 32,
    "maxnreg": None,
    "ptx_version": None,
    "ptx_options": None,
    "ir_override": None,
    "enable_fp_fusion": True,
    "launch_cooperative_grid": False,
    "launch_pdl": False,
    "extern_libs": (),
    "debug": False,
    "backend_name": "cuda",
    "sanitize_overflow": True,
}


@exported("triton.backends.nvidia.compiler")
class CUDABackend(BaseBackend):
    """The backend of NVIDIA's GPUs: it compiles nothing."""

    binary_ext = "cubin"

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """Say whether a target is one of NVIDIA's."""
        return target.backend == "cuda"

    def hash(self) -> str:
        """Return the hash of the backend that the recording was made with."""
        found = recorded().backend_hashes.get(f"sm_{self.target.arch}")
        if found is None:
            raise MissingError(
                "triton.backends.nvidia.compiler.CUDABackend.hash", "the recording has no hash of Triton's backend"
            )
        return found

    def parse_options(self, opts: dict[str, Any]) -> Any:
        """Return options with Triton's defaults."""
        known = {name: value for name, value in opts.items() if name in _OPTIONS and value is not None}
        return SimpleNamespace(**{**_OPTIONS, "arch": f"sm{self.target.arch}", **known})


@exported("triton.backends")
class Backend(NamedTuple):
    """A vendor's compiler and driver."""

    compiler: Any
    driver: Any


@exported("triton.compiler.compiler")
def make_backend(target: GPUTarget) -> CUDABackend:
    """Return the backend of a target.

    Raises:
        RuntimeError: there is none.
    """
    if not CUDABackend.supports_target(target):
        raise RuntimeError(f"0 compatible backends for target ({target.backend}) ([]). There should only be one.")
    return CUDABackend(target)


@exported("triton.compiler.compiler")
def compile(src: Any, target: Any = None, options: Any = None, _env_vars: Any = None) -> Any:  # noqa: A001, ARG001 - Triton's
    """Raise an error: there is no compiler."""
    function = getattr(getattr(src, "fn", None), "__name__", "")
    raise MissingError("triton.compile", f"nojit's stand-in has no compiler{function and f' for {function}'}")


@exported("triton.compiler.compiler")
class CompiledKernel:
    """Base of the objects that launches return; the serving package makes its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise MissingError("triton.compiler.CompiledKernel")


@exported("triton.compiler.compiler")
class LazyDict:
    """A dict, some of whose values are computed when they are asked for."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.extras: list[tuple[Any, Any]] = []

    def get(self) -> dict[str, Any]:
        """Return the dict, with all values."""
        for function, args in self.extras:
            self.data |= function(*args)
        self.extras.clear()
        return self.data

    def add(self, func: Any, args: Any) -> None:
        """Add values that a function returns."""
        self.extras.append((func, args))


@exported("triton.compiler.compiler")
def max_shared_mem(device: Any) -> int:
    """Return the bytes of shared memory that a block can have."""
    from nojit.runtime.serve.standin.driver import driver  # it imports this module

    return driver.active.utils.get_device_properties(device)["max_shared_mem"]  # type: ignore[no-any-return] # a number


@exported("triton.runtime.cache")
def triton_key() -> str:
    """Return the key of the Triton that the recording was made with; Inductor's own keys contain it."""
    found = recorded().key
    return f"{recorded().version}+nojit" if found is None else found


@exported("triton.runtime.cache")
def _base32(key: str) -> str:
    """Spell hex digits in base 32, for a file's name."""
    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")
