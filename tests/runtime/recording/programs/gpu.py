"""A GPU for Triton that compiles nothing and launches into a list: `install` makes it the process's."""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import CompiledKernel


class Tensor:
    """A tensor for Triton's binder."""

    def __init__(self, dtype: str = "float32", address: int = 4096) -> None:
        self.dtype = dtype
        self._address = address

    def data_ptr(self) -> int:
        return self._address


class Gpu:
    """A driver for Triton that records what it launches."""

    def __init__(self, arch: int = 90) -> None:
        self.arch = arch
        self.device = 0
        self.launched: list[tuple[str, tuple[int, ...]]] = []
        self.broken: set[str] = set()

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self) -> int:
        return self.device

    def get_current_stream(self, _device: int) -> int:
        return 0

    def get_benchmarker(self) -> Any:
        def benchmark(call: Any, quantiles: Any) -> list[float]:
            call()
            call()
            # the last config wins
            self.time_ms = getattr(self, "time_ms", 1.0) / 2
            return [self.time_ms] * 3

        return benchmark

    def compile(self, src: Any, target: Any = None, options: Any = None, **_: Any) -> Any:
        name = src.fn.__name__
        if name in self.broken:
            raise RuntimeError(f"cannot compile {name}")
        kernel = CompiledKernel.__new__(CompiledKernel)
        kernel.src = src
        kernel.name = name
        kernel.module = kernel.function = kernel.packed_metadata = None
        kernel._init_handles = lambda: None
        kernel._run = lambda *args: self.launched.append((name, args[:3]))
        return kernel


def install(gpu: Gpu) -> None:
    """Make a GPU the process's, for good."""
    triton.runtime.driver.set_active(gpu)
    triton.compiler.compile = gpu.compile
