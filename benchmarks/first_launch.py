"""Time the steps before a process's first launch: import, opening, kernel look-up, launch; and a preload of all images.

    python benchmarks/first_launch.py BUNDLE [--repeat 21] [--fake]

BUNDLE is a file or folder with `vector_add` and `flash_attention_fwd`. Each figure is the median over new processes with a
warm page cache. On a GPU, torch is initialized before the clock starts. With ``--fake`` the tests' driver and framework
replace the real ones and are loaded beforehand, so that the figures are nojit's own share. The plain interpreter is timed
for comparison. Exits 1 if a median exceeds its bar; ``--fake`` has no bars.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

_TORCH = """
import torch
n = 1 << 20
x = torch.randn(n, device="cuda"); y = torch.randn(n, device="cuda"); out = torch.empty_like(x)
q = torch.randn(1, 8, 1024, 128, device="cuda", dtype=torch.bfloat16); o = torch.empty_like(q)
strides = [*q.stride()[:3]] * 4
done = torch.cuda.synchronize
done()
"""

_FAKE = """
import ctypes, importlib.util, os
driver, context = ctypes.CDLL(os.environ["NOJIT_LIBCUDA"]), ctypes.c_void_p()
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
spec = importlib.util.spec_from_file_location("faketorch", os.environ["FAKETORCH"])
faketorch = importlib.util.module_from_spec(spec)
spec.loader.exec_module(faketorch)
n = 1 << 20
x, y, out = (faketorch.Tensor(0x10000 * i, "float32", (n,)) for i in (1, 2, 3))
q, o = (faketorch.Tensor(0x100000 * i, "bfloat16", (1, 8, 1024, 128)) for i in (1, 2))
strides = [1048576, 131072, 128] * 4
done = int
"""

_PROBE = """
import gc, json, sys, time
now = time.perf_counter_ns
started = now()
from nojit import runtime
load = runtime.load
imported = now()
bundle = load(sys.argv[1])
opened = now()
add = bundle.kernel("vector_add")
known = now()
add(x, y, out, n)
first = now()
done()
flash_started = now()
bundle.kernel("flash_attention_fwd")(
    q, q, q, o, None, 0.088, 0, 0, 1, 8, 1, 1024, 1024, 128, 128, *strides, MASK="causal", BLOCK_D=128, BLOCK_DV=128
)
flash = now()
done()
again_started = now()
second = load(sys.argv[1])
second.kernel("flash_attention_fwd")(
    q, q, q, o, None, 0.088, 0, 0, 1, 8, 1, 1024, 1024, 128, 128, *strides, MASK="causal", BLOCK_D=128, BLOCK_DV=128
)
again = now()
done()
preload_started = now()
images = bundle.preload()
preloaded = now()
steps = (imported - started, opened - imported, known - opened, first - known, first - opened, first - imported,
         flash - flash_started, again - again_started, (preloaded - preload_started) / images)
print(json.dumps([step / 1e6 for step in steps]))
"""

# the same image without nojit: the least that any runtime must do
_DRIVER = """
import ctypes, json, os, sys, time
from nojit import runtime
bundle = runtime.load(sys.argv[1])
name = sys.argv[2]
table = bundle.kernel(name).variants()
file = next(file for file in bundle.files if name in file.kernels and file.table(name) is table)
launch = table.launches[table.columns["launch"][0]]
image, symbol = file.image(name, table.columns["image"][0]), launch.symbol.encode()
driver = ctypes.CDLL(os.environ.get("NOJIT_LIBCUDA", "libcuda.so.1"))
context = ctypes.c_void_p()
assert not driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not driver.cuCtxSetCurrent(context)
zeros = [ctypes.c_uint64(0) for _ in launch.layout]
params = (ctypes.c_void_p * len(zeros))(*map(ctypes.addressof, zeros))
library, kernel, function, nothing = (ctypes.c_void_p() for _ in range(4))
load, find, get, run = (
    getattr(driver, name) for name in ("cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction", "cuLaunchKernel")
)
started = time.perf_counter_ns()
status = [
    load(ctypes.byref(library), image, None, None, 0, None, None, 0),
    find(ctypes.byref(kernel), library, symbol),
    get(ctypes.byref(function), kernel),
]
# with zeros as its arguments it does nothing
if name == "vector_add":
    status.append(run(function, 1, 1, 1, 32 * launch.num_warps, 1, 1, launch.shared_bytes, nothing, params, None))
ended = time.perf_counter_ns()
done()
assert not any(status), status
print(json.dumps([(ended - started) / 1e6]))
"""

_STEPS = (
    ("import nojit.runtime and load", 20.0),
    ("open the bundle", None),
    ("kernel(): vector_add", None),
    ("first call of it", None),
    ("first launch: kernel() and call", 0.5),
    ("open and first launch", 1.0),
    ("first launch of another: flash attention", 0.7),
    ("open and first launch, modules warm", 1.0),
    ("preload, for each image", 1.0),
    ("the driver alone: vector_add", None),
    ("the driver alone, no launch: flash attention", None),
)
"""The name of each figure, and its bar in milliseconds."""


def fake_environment(folder: Path) -> dict[str, str]:
    """Build the tests' driver and framework into `folder`, unless they are set; return the environment that selects them."""
    if "FAKETORCH" in os.environ:
        return {}
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.fakecuda import build_driver, build_faketorch

    return {"NOJIT_LIBCUDA": str(build_driver(folder)), "FAKETORCH": str(build_faketorch(folder))}


def compiled_once(folder: Path) -> dict[str, str]:
    """Return the environment of a folder for bytecode: installing a wheel compiles its modules."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def probe(bundle: str, code: str, environment: Mapping[str, str], *more: str) -> list[float]:
    """Run every step in a new process; return milliseconds."""
    command = [sys.executable, "-c", code, bundle, *more]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    steps: list[float] = json.loads(ran.stdout)
    return steps


def process_ms(code: str, *arguments: str) -> float:
    """Return the time of a whole process, in milliseconds."""
    started = time.perf_counter_ns()
    subprocess.run([sys.executable, "-c", code, *arguments], check=True)
    return (time.perf_counter_ns() - started) / 1e6


def main() -> int:
    """Print the medians, and those that exceed their bars."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("bundle")
    parser.add_argument("--repeat", type=int, default=21)
    parser.add_argument("--fake", action="store_true", help="the tests' driver and framework: no GPU is needed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= compiled_once(Path(folder))
        environment = fake_environment(Path(folder)) if options.fake else {}
        setup = _FAKE if options.fake else _TORCH
        alone = [(setup + _DRIVER, environment, kernel) for kernel in ("vector_add", "flash_attention_fwd")]
        ways = [(setup + _PROBE, environment), *alone]
        rows = [[step for given in ways for step in probe(options.bundle, *given)] for _ in range(options.repeat + 1)]
        del rows[0]  # the first process compiled the modules
        opening = "import sys; from nojit import runtime; runtime.load(sys.argv[1])"
        whole = [(process_ms("pass"), process_ms(opening, options.bundle)) for _ in range(options.repeat)]
        plain, loaded = (statistics.median(column) for column in zip(*whole, strict=True))
        print(f"{'python, load, above plain python':42s} {loaded - plain:8.3f} ms   plain {plain:7.3f}")
    missed = 0
    for (step, bar), column in zip(_STEPS, zip(*rows, strict=True), strict=True):
        median = statistics.median(column)
        past = bar is not None and not options.fake and median > bar
        verdict = "" if bar is None or options.fake else f"bar {bar:g}{', MISSED' if past else ''}"
        print(f"{step:42s} {median:8.3f} ms   best {min(column):8.3f}   {verdict}".rstrip())
        missed += past
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
