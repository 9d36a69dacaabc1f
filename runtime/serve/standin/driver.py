"""``triton.runtime.driver``: the current device, its stream and its properties, by torch and the CUDA driver."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final

from nojit.runtime import _core
from nojit.runtime.errors import DriverError
from nojit.runtime.serve.standin.callbacks import MissingAttributeError
from nojit.runtime.serve.standin.constexpr_functions import constexpr_function
from nojit.runtime.serve.standin.registry import export, exported
from nojit.runtime.serve.standin.targets import Backend, CUDABackend, GPUTarget

__all__ = ["CudaDriver", "CudaUtils", "DriverConfig", "driver"]

# names of Triton's, and CUdevice_attribute in cuda.h
_ATTRIBUTES: Final = {
    "max_shared_mem": 97,
    "max_num_regs": 12,
    "multiprocessor_count": 16,
    "warpSize": 10,
    "sm_clock_rate": 13,
    "mem_clock_rate": 36,
    "mem_bus_width": 37,
}
_CPP_TYPES: Final = {
    "i1": "int8_t",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "u1": "uint8_t",
    "u8": "uint8_t",
    "u16": "uint16_t",
    "u32": "uint32_t",
    "u64": "uint64_t",
    "fp16": "double",
    "bf16": "double",
    "fp32": "double",
    "f32": "double",
    "fp64": "double",
    "nvTmaDesc": "CUtensorMap",
}


def _torch() -> Any:
    import torch

    return torch


@exported("triton.backends.driver")
class DriverBase:
    """Base of drivers."""


@exported("triton.backends.driver")
class GPUDriver(DriverBase):
    """Base of drivers that ask torch."""

    def get_current_device(self) -> int:
        """Return the number of torch's current device."""
        return int(_torch().cuda.current_device())

    def set_current_device(self, device: int) -> None:
        """Set torch's current device."""
        _torch().cuda.set_device(device)

    def get_current_stream(self, device: Any = None) -> int:
        """Return the handle of torch's current stream."""
        torch = _torch()
        device = self.get_current_device() if device is None else device
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # noqa: SLF001 - what Triton calls
        return int(raw(device) if raw is not None else torch.cuda.current_stream(device).cuda_stream)

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        """Return the compute capability of a device."""
        major, minor = _torch().cuda.get_device_capability(device)
        return major, minor

    def get_device_interface(self) -> Any:
        """Return `torch.cuda`."""
        return _torch().cuda

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        """Return the arguments."""
        return args


@exported("triton.backends.nvidia.driver")
class CudaUtils:
    """Functions of the CUDA driver; those that load or launch are nojit's own."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Return what Triton tells of a device: bytes, counts, and rates in kHz.

        Raises:
            DriverError: the CUDA driver refuses.
        """
        return {name: _core.device_attribute(device, attribute) for name, attribute in _ATTRIBUTES.items()}

    def __getattr__(self, name: str) -> Any:
        raise MissingAttributeError(f"triton.runtime.driver.active.utils.{name}")


@exported("triton.backends.nvidia.driver")
class CudaDriver(GPUDriver):
    """The driver of NVIDIA's GPUs."""

    def __init__(self) -> None:
        self.utils = CudaUtils()

    @property
    def launcher_cls(self) -> Any:
        """Raise an error: launches are nojit's."""
        raise MissingAttributeError("triton.runtime.driver.active.launcher_cls")

    @staticmethod
    def is_active() -> bool:
        """Say whether there is a GPU of NVIDIA's."""
        torch = sys.modules.get("torch")
        if torch is not None:
            return bool(torch.cuda.is_available() and torch.version.hip is None)
        try:
            return _core.device_count() > 0 and _core.device_capability(0) < _core.GFX_FIRST
        except DriverError:
            return False

    def get_current_target(self) -> GPUTarget:
        """Return the target of the current device."""
        major, minor = self.get_device_capability(self.get_current_device())
        return GPUTarget("cuda", major * 10 + minor, 32)

    def get_active_torch_device(self) -> Any:
        """Return the current device, as torch's."""
        return _torch().device("cuda", self.get_current_device())

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Return the C type of an argument."""
        return "CUdeviceptr" if ty.startswith("*") else "CUtensorMap" if ty.startswith("tensordesc") else _CPP_TYPES[ty]

    def get_benchmarker(self) -> Callable[..., Any]:
        """Return `do_bench`."""
        from nojit.runtime.serve.standin.testing import do_bench  # it imports this module

        return do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        """Return a tensor larger than the L2 cache, to clear before each run."""
        torch = _torch()
        return torch.empty(1 << 26, dtype=torch.int, device="cuda")

    def clear_cache(self, cache: Any) -> None:
        """Clear the L2 cache: write the tensor."""
        cache.zero_()


@exported("triton.runtime.driver")
class DriverConfig:
    """The driver in use."""

    def __init__(self) -> None:
        self._default: Any = None
        self._active: Any = None

    @property
    def default(self) -> Any:
        """The driver of this machine.

        Raises:
            RuntimeError: there is no GPU.
        """
        if self._default is None:
            self._default = _create()
        return self._default

    @property
    def active(self) -> Any:
        """The driver that a program set, or else the machine's."""
        if self._active is None:
            self._active = self.default
        return self._active

    def set_active(self, driver: Any) -> None:
        """Set the driver."""
        self._active = driver

    def reset_active(self) -> None:
        """Set the machine's driver."""
        self._active = self.default


def _create() -> Any:
    selected = os.environ.get("TRITON_DEFAULT_BACKEND")
    if selected and selected not in backends:
        raise RuntimeError(f"Unknown backend device '{selected}'. Available backends: {[*backends]}")
    if CudaDriver.is_active():
        return CudaDriver()
    if selected:
        raise RuntimeError(f"Backend device '{selected}' is not active.")
    raise RuntimeError("0 active drivers ([]). There should only be one.")


backends: Final = {"nvidia": Backend(CUDABackend, CudaDriver)}
driver: Final = DriverConfig()
export("triton.runtime.driver", driver=driver, backends=backends, DriverBase=DriverBase)
export("triton.backends", backends=backends)


@exported("triton.language.target_info")
def current_target() -> GPUTarget | None:
    """Return the target of the current device; None without a GPU."""
    try:
        active = driver.active
    except RuntimeError:
        return None
    return active.get_current_target()  # type: ignore[no-any-return] # a program's own driver may return another


def _backend() -> str:
    target = current_target()
    return "" if target is None else target.backend


@constexpr_function
def is_cuda() -> bool:
    """Say whether the current device is one of NVIDIA's."""
    return _backend() == "cuda"


@constexpr_function
def cuda_capability_geq(major: int, minor: int = 0) -> bool:
    """Say whether the current device has at least this compute capability."""
    target = current_target()
    return target is not None and target.backend == "cuda" and int(target.arch) >= major * 10 + minor


@constexpr_function
def is_hip() -> bool:
    """Say whether the current device is one of AMD's."""
    return _backend() == "hip"


def _is_arch(prefix: str) -> Any:
    def is_arch() -> bool:
        target = current_target()
        return target is not None and target.backend == "hip" and str(target.arch).startswith(prefix)

    return constexpr_function(is_arch)


_marked: Any = current_target
_marked.__triton_builtin__ = True
export(
    "triton.language.target_info",
    is_cuda=is_cuda,
    is_hip=is_hip,
    cuda_capability_geq=cuda_capability_geq,
    is_hip_cdna3=_is_arch("gfx942"),
    is_hip_cdna4=_is_arch("gfx950"),
    is_hip_gfx1250=_is_arch("gfx1250"),
)
