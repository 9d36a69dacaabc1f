"""Script of one cold start: load kernels, launch each once, wait, and record the end of each stage.

`cold_start` runs the script by its path, so that Python imports only the modules of the contender::

    python start.py ctypes RESULT CUBIN:SYMBOL:THREADS:SHARED_BYTES:SCRATCH_PARAMS...
    python start.py nojit RESULT BUNDLE preload|lazy
    python start.py torch-nojit RESULT BUNDLE preload|lazy
    python start.py torch-triton RESULT SOURCE COUNT

The script writes to RESULT one line per stage, with its name and the clock in ns, and a line ``value`` with the first element
of the last kernel's output.
"""

# imports happen inside functions, because their time is part of the measurement
from __future__ import annotations

import sys
import time

# the script imports nothing that a contender does not need: `typing` alone takes longer than the rest of the ctypes script
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LENGTH = 1024
_marks: list[tuple[str, float]] = []


def mark(stage: str) -> None:
    """Record the end of a stage."""
    _marks.append((stage, time.monotonic_ns()))


class Device:
    """The first device, with two vectors on it, through ctypes calls of the driver."""

    def __init__(self) -> None:
        import ctypes
        import os

        self.ctypes = ctypes
        self.driver = ctypes.CDLL(os.environ.get("NOJIT_LIBCUDA", "libcuda.so.1"))
        mark("import")
        context = ctypes.c_void_p()
        self.check(self.driver.cuInit(0))
        self.check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self.check(self.driver.cuCtxSetCurrent(context))
        self.x, self.out = self.zeros(), self.zeros()
        mark("context")

    def check(self, code: int) -> None:
        """Raise an error unless a driver call succeeded.

        `code`: result of the call, 0 for success.
        """
        if code:
            raise RuntimeError(f"a driver call returned error {code}")

    def zeros(self) -> int:
        """Allocate a vector of fp32 zeros; return its address."""
        address = self.ctypes.c_uint64()
        self.check(self.driver.cuMemAlloc_v2(self.ctypes.byref(address), self.ctypes.c_size_t(4 * _LENGTH)))
        self.check(self.driver.cuMemsetD8_v2(address, 0, self.ctypes.c_size_t(4 * _LENGTH)))
        return address.value

    def finish(self) -> float:
        """Wait for all launches; return the first element of the output."""
        first = self.ctypes.c_float()
        self.check(self.driver.cuCtxSynchronize())
        mark("done")
        where = self.ctypes.c_uint64(self.out)
        self.check(self.driver.cuMemcpyDtoH_v2(self.ctypes.byref(first), where, self.ctypes.c_size_t(4)))
        return first.value


def with_ctypes(images: list[str]) -> float:
    """Load cubins and launch them with driver calls; return the first element of the output."""
    device = Device()
    ctypes, driver = device.ctypes, device.driver
    launches = []
    for image in images:
        path, symbol, *facts = image.split(":")
        library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        with open(path, "rb") as file:  # noqa: PTH123 - importing pathlib would take time
            code = file.read()
        device.check(driver.cuLibraryLoadData(ctypes.byref(library), code, None, None, 0, None, None, 0))
        device.check(driver.cuLibraryGetKernel(ctypes.byref(kernel), library, symbol.encode()))
        launches.append((kernel, *map(int, facts)))
    mark("load")
    for kernel, threads, shared_bytes, scratch in launches:
        values = [ctypes.c_uint64(device.x), ctypes.c_uint64(device.out), ctypes.c_int32(_LENGTH)]
        values += [ctypes.c_uint64(0)] * scratch
        params = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        device.check(driver.cuLaunchKernel(kernel, 1, 1, 1, threads, 1, 1, shared_bytes, None, params, None))
    mark("launch")
    return device.finish()


def with_nojit(words: list[str]) -> float:
    """Launch from a bundle, without torch; return the first element of the output."""
    device = Device()
    # addresses belong to no framework, which could say which stream is current
    launch_bundle(words, device.x, device.out, stream=0)
    return device.finish()


def launch_bundle(words: list[str], x: Any, out: Any, **stream: int) -> None:
    """Open a bundle and launch each of its kernels, from `x` to `out`.

    `words`: path of the bundle, and how to load it. `stream`: the stream, if `x` and `out` do not know it.
    """
    path, loading = words
    from nojit import runtime

    open_bundle: Callable[[str], runtime.Bundle] = runtime.load
    mark("import nojit")
    bundle = open_bundle(path)
    mark("open")
    if loading == "preload":
        bundle.preload()
        mark("preload")
    for name in sorted(bundle.kernels, key=lambda name: int(name.rpartition("_")[2])):
        bundle.kernel(name)(x, out, _LENGTH, **stream)
    mark("launch")


def torch_tensors() -> tuple[Any, Any, Any]:
    """Import torch; return it with two tensors."""
    import torch

    mark("import torch")
    x, out = torch.zeros(_LENGTH, device="cuda"), torch.zeros(_LENGTH, device="cuda")
    torch.cuda.synchronize()
    mark("context")
    return torch, x, out


def with_torch_and_nojit(words: list[str]) -> float:
    """Launch from a bundle, on torch tensors; return the first element of the output."""
    torch, x, out = torch_tensors()
    launch_bundle(words, x, out)
    torch.cuda.synchronize()
    mark("done")
    return float(out[0])


def with_torch_and_triton(words: list[str]) -> float:
    """Launch with Triton's JIT, on torch tensors; return the first element of the output."""
    source, count = words
    torch, x, out = torch_tensors()
    folder, _, name = source.rpartition("/")
    sys.path.insert(0, folder)
    module = __import__(name.removesuffix(".py"))
    mark("import Triton")
    for number in range(int(count)):
        getattr(module, f"cold_{number}")[1,](x, out, _LENGTH, BLOCK=1024, num_warps=4)
    mark("launch")
    torch.cuda.synchronize()
    mark("done")
    return float(out[0])


def main(words: list[str]) -> None:
    """Run the contender `words[0]`, and write its stages to the file `words[1]`."""
    mark("start")
    ways = {
        "ctypes": with_ctypes,
        "nojit": with_nojit,
        "torch-nojit": with_torch_and_nojit,
        "torch-triton": with_torch_and_triton,
    }
    value = ways[words[0]](words[2:])
    with open(words[1], "w", encoding="utf-8") as file:  # noqa: PTH123 - as above
        file.writelines(f"{stage}\t{clock}\n" for stage, clock in [*_marks, ("value", value)])


if __name__ == "__main__":
    main(sys.argv[1:])
