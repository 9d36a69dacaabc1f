"""A driver for Triton that compiles no C: nojit's engine and torch answer what host code asks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

from nojit.runtime import _core
from nojit.runtime.errors import NojitError
from nojit.runtime.target import is_gfx, spell_arch, warp_threads

__all__ = ["Driver", "current_stream"]

# of CUdevice_attribute in cuda.h, by the names of Triton's get_device_properties
_PROPERTIES = {
    "max_shared_mem": 97,
    "max_num_regs": 12,
    "multiprocessor_count": 16,
    "warpSize": 10,
    "sm_clock_rate": 13,
    "mem_clock_rate": 36,
    "mem_bus_width": 37,
}
# these chips have shared memory beyond what attribute 97 says
_OVERSIZED_SHARED = frozenset({107})
_OVERSIZED_SHARED_ATTRIBUTE = 150


class Driver:
    """Stands for ``triton.runtime.driver.active`` while bundles are served.

    Triton's own driver does all that only a JIT needs, such as launchers and loading binaries, and compiles C for it.

    Args:
        make: returns Triton's own driver.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self._own: Any = None

    def __getattr__(self, name: str) -> Any:
        # names that the class lacks
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.own(), name)

    def own(self) -> Any:
        """Return Triton's own driver; make it the first time."""
        with self._lock:
            if self._own is None:
                self._own = self._make()
            return self._own

    @cached_property
    def utils(self) -> _Utils:
        """Properties of devices; the rest is Triton's."""
        return _Utils(self)

    @staticmethod
    def is_active() -> bool:
        """Return True: serving installed it."""
        return True

    def get_current_device(self) -> int:
        """Return the ordinal of torch's current device, or of the thread's CUDA context."""
        torch = _cuda_of_torch()
        return int(torch.cuda.current_device()) if torch is not None else _core.current_device()

    def set_current_device(self, device: int) -> None:
        """Make a device current, in torch."""
        import torch

        torch.cuda.set_device(device)

    def get_current_stream(self, device: int | None = None) -> int:
        """Return the handle of torch's current stream on a device; 0 without torch."""
        return current_stream(self.get_current_device() if device is None else device)

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Return the compute capability, ``(9, 0)``."""
        major, minor = divmod(_capability(self.get_current_device() if device is None else device), 10)
        return major, minor

    def get_current_target(self) -> Any:
        """Return the ``GPUTarget`` of the current device."""
        from triton.backends.compiler import GPUTarget

        number = _capability(self.get_current_device())
        return GPUTarget("cuda", number, warp_threads(number))

    def get_active_torch_device(self) -> Any:
        """Return torch's current device."""
        import torch

        return torch.device("cuda", self.get_current_device())

    def get_device_interface(self) -> Any:
        """Return ``torch.cuda``."""
        import torch

        return torch.cuda

    def get_benchmarker(self) -> Any:
        """Return Triton's ``do_bench``."""
        from triton.testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        """Return a buffer of 256 MiB, larger than the L2 cache."""
        import torch

        return torch.empty(1 << 26, dtype=torch.int, device="cuda")

    def clear_cache(self, cache: Any) -> None:
        """Overwrite the buffer."""
        cache.zero_()


class _Utils:
    """The facts of devices that Triton asks for."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._driver.own().utils, name)

    def get_device_properties(self, device: int) -> dict[str, int]:
        numbers = dict(_PROPERTIES)
        if _capability(device) in _OVERSIZED_SHARED:
            numbers["max_shared_mem"] = _OVERSIZED_SHARED_ATTRIBUTE
        return {name: _core.device_attribute(device, number) for name, number in numbers.items()}

    def get_device_capability(self, device: int) -> tuple[int, int]:
        return self._driver.get_device_capability(device)

    def get_current_device(self) -> int:
        return self._driver.get_current_device()

    def set_current_device(self, device: int) -> None:
        self._driver.set_current_device(device)

    def get_default_stream(self, device: int) -> int:  # noqa: ARG002 - the null stream of any device
        return 0


def _capability(device: int) -> int:
    """Return the compute capability of a device as one number, 90 for 9.0.

    Raises:
        NojitError: the device is AMD's, and has none.
    """
    number = _core.device_capability(device)
    if is_gfx(number):
        what = (
            "expected a GPU of NVIDIA: programs are not served on AMD's; launch bundles with runtime.load (docs/amd.md)"
        )
        raise NojitError(what, got=spell_arch(number), where=f"device {device}")
    return number


def current_stream(device: int) -> int:
    """Return the handle of torch's current stream on a device; 0 if torch does not use CUDA in this process."""
    torch = _cuda_of_torch()
    ask = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return 0 if ask is None else int(ask(device))


def _cuda_of_torch() -> Any:
    """Return torch if it uses CUDA in this process already, else None: asking must not start it."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return torch if cuda is not None and cuda.is_initialized() else None
