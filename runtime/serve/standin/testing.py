"""``triton.testing``: time functions on a GPU, and compare tensors."""

from __future__ import annotations

import math
import statistics
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, Final

from nojit.runtime.serve.standin.callbacks import MissingError
from nojit.runtime.serve.standin.driver import driver
from nojit.runtime.serve.standin.registry import exported

__all__ = ["Benchmark", "Mark", "assert_close", "do_bench", "do_bench_cudagraph", "perf_report"]

_MODES: Final[dict[str, Callable[[list[float]], Any]]] = {
    "min": min,
    "max": max,
    "mean": statistics.mean,
    "median": statistics.median,
    "all": list,
}


def _torch() -> Any:
    import torch

    return torch


@exported("triton.testing", "_quantile")
def quantile(a: Sequence[float], q: Sequence[float]) -> list[float]:
    """Return quantiles of numbers, interpolated.

    Raises:
        ValueError: a quantile is not between 0 and 1.
    """
    ordered = sorted(a)
    found = []
    for each in q:
        if not 0 <= each <= 1:
            raise ValueError("Quantiles must be in the range [0, 1]")
        place = each * (len(ordered) - 1)
        low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
        found.append(low + (high - low) * (place - math.floor(place)))
    return found


@exported("triton.testing", "_summarize_statistics")
def summarize(times: list[float], quantiles: Sequence[float] | None, return_mode: str) -> Any:
    """Return the quantiles, or one number by its mode; all times for ``all``."""
    if quantiles is None:
        return _MODES[return_mode](times)
    found = quantile(times, quantiles)
    return found[0] if len(found) == 1 else found


def _check(return_mode: str) -> None:
    if return_mode not in _MODES:
        raise AssertionError(return_mode)


def _estimate(fn: Callable[[], Any], device: Any, before: Callable[[], Any]) -> float:
    """Return about how many ms a call takes."""
    start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
    start.record()
    for _ in range(5):
        before()
        fn()
    end.record()
    device.synchronize()
    return float(start.elapsed_time(end)) / 5


@exported("triton.testing")
def do_bench(
    fn: Callable[[], Any],
    warmup: int = 25,
    rep: int = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Time a function by events, with a cleared L2 cache before each run.

    Args:
        fn: the function.
        warmup: ms to run it before.
        rep: ms to time it.
        grad_to_none: tensors whose ``grad`` is dropped before each run.
        quantiles: quantiles to return; None for `return_mode`.
        return_mode: ``min``, ``max``, ``mean``, ``median`` or ``all``.

    Returns:
        ms.
    """
    _check(return_mode)
    device = driver.active.get_device_interface()
    fn()
    device.synchronize()
    cache = driver.active.get_empty_cache_for_benchmark()
    each_ms = _estimate(fn, device, lambda: driver.active.clear_cache(cache)) or 1e-3
    for _ in range(max(1, int(warmup / each_ms))):
        fn()
    pairs = []
    for _ in range(max(1, int(rep / each_ms))):
        for tensor in grad_to_none or ():
            tensor.grad = None
        driver.active.clear_cache(cache)
        start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
        start.record()
        fn()
        end.record()
        pairs.append((start, end))
    device.synchronize()
    return summarize([start.elapsed_time(end) for start, end in pairs], quantiles, return_mode)


@exported("triton.testing")
def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: int = 20,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Time a function in a CUDA graph, which leaves out the time of its host code; see `do_bench`."""
    _check(return_mode)
    cuda = _torch().cuda
    with cuda.stream(cuda.Stream()):
        fn()
        for tensor in grad_to_none or ():
            tensor.detach_()
            tensor.requires_grad_(requires_grad=True)
            tensor.grad = None
        each_ms = _estimate(fn, cuda, lambda: None)
        runs = max(1, int(rep / each_ms)) if each_ms else 1000
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for _ in range(runs):
                for tensor in grad_to_none or ():
                    tensor.grad = None
                fn()
        cuda.synchronize()
        times = []
        for _ in range(10):
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            cuda.synchronize()
            times.append(start.elapsed_time(end) / runs)
    return summarize(times, quantiles, return_mode)


@exported("triton.testing")
def assert_close(x: Any, y: Any, atol: Any = None, rtol: Any = None, err_msg: str = "") -> None:
    """Compare tensors, arrays or numbers.

    Args:
        x: one.
        y: the other.
        atol: the absolute tolerance, or a function of the dtype; 0.01 if there is none.
        rtol: the relative tolerance, or a function of the dtype; 0 if there is none.
        err_msg: the beginning of the error.

    Raises:
        AssertionError: they differ by more.
    """
    torch = _torch()
    first, second = (each if isinstance(each, torch.Tensor) else torch.tensor(each) for each in (x, y))
    atol = 1e-2 if atol is None else atol(first.dtype) if callable(atol) else atol
    rtol = 0.0 if rtol is None else rtol(first.dtype) if callable(rtol) else rtol
    first, second = first.detach().cpu().double(), second.detach().cpu().double()
    torch.testing.assert_close(
        first,
        second.expand_as(first) if second.numel() == 1 else second,
        atol=atol,
        rtol=rtol,
        equal_nan=True,
        msg=(lambda text: f"{err_msg} {text}") if err_msg else None,
    )


@exported("triton.testing")
class Benchmark:
    """The settings of a plot of times: the stand-in keeps them, and plots nothing."""

    def __init__(
        self,
        x_names: list[str],
        x_vals: list[Any],
        line_arg: str,
        line_vals: list[Any],
        line_names: list[str],
        plot_name: str,
        args: dict[str, Any],
        xlabel: str = "",
        ylabel: str = "",
        x_log: bool = False,
        y_log: bool = False,
        styles: Any = None,
    ) -> None:
        self.x_names, self.x_vals, self.x_log = x_names, x_vals, x_log
        self.line_arg, self.line_vals, self.line_names = line_arg, line_vals, line_names
        self.xlabel, self.ylabel, self.y_log = xlabel, ylabel, y_log
        self.plot_name, self.args, self.styles = plot_name, args, styles


@exported("triton.testing")
class Mark:
    """A function with plots; it stays callable by `fn`."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Any) -> None:
        self.fn = fn
        self.benchmarks = benchmarks

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an error: the stand-in plots nothing."""
        raise MissingError("triton.testing.Mark.run", "nojit's stand-in draws no plots")


@exported("triton.testing")
def perf_report(benchmarks: Any) -> Callable[[Any], Mark]:
    """Decorate a function that a plot times."""
    return lambda fn: Mark(fn, benchmarks)


@exported("triton.testing")
def nvsmi(attrs: Sequence[str]) -> list[int]:
    """Ask ``nvidia-smi`` for numbers of the first GPU."""
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(attrs)}", "--format=csv,noheader,nounits"]
    return [int(each) for each in subprocess.check_output(command, text=True).split(",")]


@exported("triton.testing")
def get_dram_gbps(device: Any = None) -> float:
    """Return the bandwidth of a device's memory in GB/s."""
    active = driver.active
    device = active.get_device_interface().current_device() if device is None else device
    found = active.utils.get_device_properties(device)
    # kHz and bits; two transfers a cycle
    return float(found["mem_clock_rate"] * found["mem_bus_width"] * 2 / 1e6 / 8)


def _tflops(device: Any, clock_rate: float, operations: int) -> float:
    device = device or _torch().cuda.current_device()
    # four parts of an SM compute at a time
    cores = driver.active.utils.get_device_properties(device)["multiprocessor_count"] * 4
    return float(cores * clock_rate * operations * 1e-9)


@exported("triton.testing")
def get_max_tensorcore_tflops(dtype: Any, clock_rate: float, device: Any = None) -> float:
    """Return the TFLOPS of a device's tensor cores, for a clock rate in kHz.

    Raises:
        RuntimeError: they have no such dtype.
    """
    torch = _torch()
    old = torch.cuda.get_device_capability(device)[0] < 8
    bits = getattr(dtype, "itemsize", 0) * 8
    if old:
        if dtype != torch.float16:
            raise AssertionError
        return _tflops(device, clock_rate, 256)
    operations = {32: 256, 16: 512, 8: 1024}.get(bits)
    if operations is None:
        raise RuntimeError("dtype not supported")
    return _tflops(device, clock_rate, operations)


@exported("triton.testing")
def get_max_simd_tflops(dtype: Any, clock_rate: float, device: Any = None) -> float:
    """Return the TFLOPS of a device without its tensor cores, for a clock rate in kHz.

    Raises:
        RuntimeError: Triton does not tell for this dtype.
    """
    torch = _torch()
    new = torch.cuda.get_device_capability()[0] >= 8
    operations = {torch.float32: 32, torch.float16: 32 if new else 64, **({torch.bfloat16: 32} if new else {})}.get(
        dtype
    )
    if operations is None:
        raise RuntimeError("dtype not supported")
    return _tflops(device, clock_rate, operations)
