"""Measure launching on a GPU: the first launch of a process, and the overhead of each against a C loop.

    python benchmarks/launch_bars.py BUNDLE [--rounds 60] [--launches 200]

BUNDLE is a file or folder that holds `vector_add` and `flash_attention_fwd`. Needs torch and gcc; Triton is timed too
where it is installed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FIRST = """
import json, sys, time, torch
n = 1 << 20
x = torch.randn(n, device="cuda"); y = torch.randn(n, device="cuda"); out = torch.empty_like(x)
q = torch.randn(1, 8, 1024, 128, device="cuda", dtype=torch.bfloat16); o = torch.empty_like(q)
torch.cuda.synchronize()
started = time.perf_counter_ns()
from nojit import runtime
runtime.load
imported = time.perf_counter_ns()
bundle = runtime.load(sys.argv[1])
opened = time.perf_counter_ns()
bundle.kernel("vector_add")(x, y, out, n)
launched = time.perf_counter_ns()
torch.cuda.synchronize()
done = time.perf_counter_ns()
strides = [*q.stride()[:3]] * 4
bundle.kernel("flash_attention_fwd")(
    q, q, q, o, None, 0.088, 0, 1, 8, 1, 1024, 1024, 128, 128, *strides, CAUSAL=True, BLOCK_D=128, BLOCK_DV=128
)
second = time.perf_counter_ns()
torch.cuda.synchronize()
assert torch.equal(out, x + y)
print(json.dumps([t / 1e6 for t in (imported - started, opened - imported, launched - opened, second - done)]))
"""


def first_launches(bundle: str, repeat: int) -> None:
    """Print what the first launch costs, in processes that have torch up and nothing of nojit."""
    rows = []
    for _ in range(repeat):
        ran = subprocess.run([sys.executable, "-c", _FIRST, bundle], check=True, stdout=subprocess.PIPE, text=True)
        rows.append(json.loads(ran.stdout))
    imported, opened, first, second = (statistics.median(column) for column in zip(*rows, strict=True))
    print(f"import nojit.runtime, torch up              {imported:8.2f} ms   (median of {repeat} processes)")
    print(f"open the bundle                             {opened:8.2f} ms")
    print(f"first launch of a process: vector_add       {first:8.2f} ms   bar 2 ms: load + select + launch")
    print(f"first launch of another: flash attention    {second:8.2f} ms   bar 2 ms")


def c_loop(folder: Path) -> Any:
    """Compile the loop."""
    library = folder / "c_loop.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, Path(__file__).parent / "c_loop.c"], check=True)
    loop = ctypes.CDLL(str(library)).launch_loop
    loop.restype = ctypes.c_int64
    return loop


def load_function(image: bytes, symbol: str) -> tuple[Any, ctypes.c_void_p]:
    """Load a cubin without nojit: the driver and the function for the loop."""
    driver = ctypes.CDLL("libcuda.so.1")
    library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    loaded = driver.cuLibraryLoadData(ctypes.byref(library), image, None, None, 0, None, None, 0)
    found = driver.cuLibraryGetKernel(ctypes.byref(kernel), library, symbol.encode())
    if loaded or found:
        raise RuntimeError(f"expected to load {symbol}, got {loaded} and {found}")
    return driver, kernel


def overhead(bundle_path: str, rounds: int, launches: int) -> None:
    """Print the host's cost of one launch of a 4-argument kernel, every way in turn, in interleaved rounds."""
    import torch
    from nojit import runtime

    n = 1024
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    bundle = runtime.load(bundle_path)
    add = bundle.kernel("vector_add")
    add(x, y, out, n)
    row = add._resolve(0, add._facts(x, y, out, n)[1]).payload[1]  # noqa: SLF001 - the very image that is launched
    table = bundle.files[0].table("vector_add")
    launch = table.launches[table.columns["launch"][row]]
    with tempfile.TemporaryDirectory() as folder:
        loop = c_loop(Path(folder))
        driver, function = load_function(bundle.files[0].image(table.columns["image"][row]), launch.symbol)
        values = [ctypes.c_uint64(t.data_ptr()) for t in (x, y, out)] + [ctypes.c_uint64(v) for v in (n, 0, 0)]
        params = (ctypes.c_void_p * 6)(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        block = 32 * launch.num_warps
        tensors = (x, y, out)
        ways: dict[str, Callable[[], float]] = {
            "C loop, cuLaunchKernel, 6 params": lambda: (
                loop(driver.cuLaunchKernel, function, 1, block, 0, stream, params, launches) / 1e3 / launches
            ),
            "nojit add(x, y, out, n)": _timed(lambda: add(x, y, out, n), launches),
            "nojit add[grid](x, y, out, n, BLOCK=1024)": _timed(lambda: add[(1,)](x, y, out, n, BLOCK=1024), launches),
            "torch.add(x, y, out=out)": _timed(lambda: torch.add(x, y, out=out), launches),
        }
        ways |= _triton(tensors, n, launches)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                torch.cuda.synchronize()
                times[name].append(way())
        torch.cuda.synchronize()
    floor, best = (
        statistics.median(times["C loop, cuLaunchKernel, 6 params"]),
        min(times["C loop, cuLaunchKernel, 6 params"]),
    )
    print(
        f"\none launch of 4 arguments, {rounds} interleaved rounds of {launches}     median us   ratio     best us   ratio"
    )
    for name, values_us in times.items():
        middle, least = statistics.median(values_us), min(values_us)
        print(f"{name:58s} {middle:8.2f} {middle / floor:7.2f} {least:11.2f} {least / best:7.2f}")
    print("bar: nojit <= 1.6 x the C loop")


def _timed(call: Callable[[], object], launches: int) -> Callable[[], float]:
    def run() -> float:
        started = time.perf_counter_ns()
        for _ in range(launches):
            call()
        return (time.perf_counter_ns() - started) / 1e3 / launches

    return run


def _triton(tensors: tuple[Any, ...], n: int, launches: int) -> dict[str, Callable[[], float]]:
    try:
        import triton
    except ImportError:
        return {}
    from nojit.kernels.pointwise.kernel import vector_add_kernel

    x, y, out = tensors
    grid = (triton.cdiv(n, 1024),)
    vector_add_kernel[grid](x, y, out, n, BLOCK=1024)
    return {
        f"Triton {triton.__version__} JIT fn[grid](...)": _timed(
            lambda: vector_add_kernel[grid](x, y, out, n, BLOCK=1024), launches
        )
    }


def main() -> None:
    """Print every figure beside its bar."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--launches", type=int, default=200)
    parser.add_argument("--processes", type=int, default=7)
    given = parser.parse_args()
    first_launches(given.bundle, given.processes)
    overhead(given.bundle, given.rounds, given.launches)


if __name__ == "__main__":
    main()
