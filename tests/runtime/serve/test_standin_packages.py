"""Modules as third-party packages write them import over the stand-in, and launch through the server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.runtime.serve.conftest import run

PACKAGES = "NOJIT_TEST_PACKAGES"
SERVE = """
import json
log = []
def launch(function, grid, args, kwargs, warmup):
    named = {**dict(zip(function.arg_names, args)), **kwargs}
    grid = grid(named) if callable(grid) else grid
    log.append([function.__name__, list(grid), {name: value for name, value in kwargs.items() if isinstance(value, (int, float, bool, str))}])
standin.set_callbacks(launch, lambda autotuner, key, configs, nargs: configs[-1])
"""

# each with the text of a module, the use that launches, and the launches
PROGRAMS = {
    "a kernel behind a checked version, with a library of two places": (
        """
import triton
import triton.language as tl
from importlib.metadata import version
from packaging.version import Version

if Version(version("triton")) >= Version("3.0.0") and Version(triton.__version__) >= Version("3.0.0"):
    try:
        from triton.language.extra.libdevice import rsqrt, tanh
    except ModuleNotFoundError:
        from triton.language.extra.cuda.libdevice import rsqrt, tanh
else:
    from triton.language.math import rsqrt

MODE: tl.constexpr = tl.constexpr(1)
SIZES = [tl.float16, tl.bfloat16]
NAMED = {str(each): each.primitive_bitwidth for each in SIZES}

@triton.jit
def _norm_forward(x_ptr, stride: tl.int64, n, eps, BLOCK: tl.constexpr, mode: tl.constexpr = MODE):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(x_ptr, rsqrt(tl.sum(x * x) / n + eps) + tanh(x))

def norm(x, n):
    block = triton.next_power_of_2(n)
    if block > 65536:
        raise RuntimeError(f"too large: {block}")
    _norm_forward[(triton.cdiv(n, block),)](x, 1, n, 1e-5, BLOCK=block, num_warps=min(max(block // 256, 1), 16))
""",
        "norm(0, 1000)",
        [["_norm_forward", [1], {"BLOCK": 1024, "num_warps": 4}]],
    ),
    "configs pruned and hooked, over heuristics": (
        """
import functools
import triton
import triton.language as tl
from triton.runtime.driver import driver

def zero(nargs):
    nargs["hooked"] = True

def prune(configs, nargs, **kwargs):
    assert nargs["n"] == kwargs.get("n", nargs["n"])
    return [config for config in configs if config.kwargs["BLOCK"] <= nargs["n"]]

@functools.cache
def shared_memory():
    try:
        return driver.active.utils.get_device_properties(driver.active.get_current_device())["max_shared_mem"]
    except BaseException:
        return 101376

@triton.autotune(
    configs=[triton.Config({"BLOCK": size}, num_warps=warps, num_stages=2, pre_hook=zero) for size in (32, 64, 4096) for warps in (2, 4)],
    key=["n"],
    prune_configs_by={"early_config_prune": prune},
    reset_to_zero=["out"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0, "HAS": lambda args: args["bias"] is not None})
@triton.jit(do_not_specialize=["n"])
def scaled(x, out, bias, n, BLOCK: tl.constexpr, EVEN: tl.constexpr = None, HAS: tl.constexpr = None):
    tl.store(out, x)

@triton.autotune([triton.Config({"BLOCK": 16})], key=[])
@triton.heuristics({"EVEN": lambda args: True})
@triton.jit
def other(x, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    pass

class Out:
    dtype = "float32"
    def zero_(self):
        pass

def use():
    assert shared_memory() > 0
    other[(2,)](7)
""",
        "use()",
        [["other", [2], {"BLOCK": 16, "EVEN": True, "num_warps": 4, "num_ctas": 1, "num_stages": 3}]],
    ),
    "an autotuner of the package's own": (
        """
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.cache import FileCacheManager
from triton.runtime.jit import KernelInterface, JITFunction

class CachedAutotuner(Autotuner):
    def __init__(self, fn, arg_names, configs, key, reset_to_zero, restore_value, **kwargs):
        super().__init__(fn, arg_names, configs, key, reset_to_zero, restore_value, **kwargs)
        self.times = 0

    def run(self, *args, **kwargs):
        self.times += 1
        return super().run(*args, **kwargs)

class Manager(FileCacheManager):
    def __init__(self, key, override=False, dump=False):
        self.key = key

class Handle(KernelInterface[JITFunction]):
    def __init__(self, fn):
        self.fn = fn
        self.arg_names = fn.arg_names

    def run(self, *args, grid, warmup, **kwargs):
        return self.fn.run(*args, grid=grid, warmup=warmup, **{**kwargs, "num_warps": 8})

def cached(configs, key):
    return lambda fn: CachedAutotuner(fn, fn.arg_names, configs, key, None, None)

@cached([triton.Config({"B": 1}), triton.Config({"B": 2})], key=["n"])
@triton.jit
def mine(x, n, B: tl.constexpr):
    pass

@Handle
@triton.jit
def handled(x):
    pass

def use():
    grid = lambda meta: (meta["n"] // meta["B"],)
    mine[grid](0, 8)
    mine[grid](0, 8)
    handled[(1, 2)](3)
    assert mine.times == 2 and mine.best_config.kwargs == {"B": 2}
""",
        "use()",
        [["mine", [4], {"B": 2, "num_warps": 4, "num_ctas": 1, "num_stages": 3}]] * 2
        + [["handled", [1, 2], {"num_warps": 8}]],
    ),
    "functions of the language and values of several kinds": (
        """
from typing import NamedTuple
import triton
import triton.language as tl
from triton.language import core
from triton.language.core import _aggregate as aggregate
from triton.language.extra import libdevice

@core.extern
def fast_exp(x, _semantic=None):
    return core.extern_elementwise("", "", [x], {(core.dtype("fp32"),): ("fast_exp", core.dtype("fp32"))}, is_pure=True, _semantic=_semantic)

@aggregate
class Range:
    start: tl.constexpr
    end: tl.constexpr

    @triton.jit
    def size(self):
        return self.end - self.start

    @triton.constexpr_function
    def half(self):
        return (self.end - self.start) // 2

class Pair(NamedTuple):
    a: int
    b: float

@triton.constexpr_function
def log2(n):
    return n.bit_length() - 1

ACTIVATIONS = {"silu": tl.sigmoid, "none": None, "sum": tl.sum}
TYPES = {tl.float16: 2, tl.dtype("fp32"): 4}

@triton.jit
def inner(x, f: tl.constexpr):
    return f(x)

class Holder:
    @staticmethod
    @triton.jit
    def kernel(pair, x, T: tl.constexpr, f: tl.constexpr, n: tl.constexpr):
        inner(x, f)

def make(width):
    @triton.jit
    def closed(x, W: tl.constexpr = width):
        tl.static_assert(W > width)
    return closed

def use():
    Holder.kernel[(1,)](Pair(1, 2.0), 0, T=tl.float16, f=ACTIVATIONS["silu"], n=log2(8))
    make(4)[(1, 1, 1)](3)
    assert TYPES[tl.float32] == 4 and Range(2, 8).half() == 3
""",
        "use()",
        [["kernel", [1], {"n": 3}], ["closed", [1, 1, 1], {}]],
    ),
    "tensor descriptors and Gluon": (
        """
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor as Plain

LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])

@gluon.aggregate
class Barriers:
    ready: gl.constexpr

@gluon.jit
def copy(desc, layout: gl.constexpr, num_warps: gl.constexpr = 4):
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    tma.async_copy_global_to_shared(desc, [0, 0], bar, desc)

class Tensor:
    class dtype:
        itemsize = 2
        is_floating_point = True
        def __str__(self): return "torch.float16"
    dtype = dtype()
    shape = [64, 64]
    def stride(self): return [64, 1]
    def data_ptr(self): return 256

def use():
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    described = TensorDescriptor.from_tensor(Tensor(), [64, 64], layout)
    assert described.__mangle__().startswith("tensordesc<fp16[64,64],NVMMASharedLayout(swizzle_byte_width=128")
    assert Plain.from_tensor(Tensor(), [16, 16]).padding == "zero"
    triton.set_allocator(lambda size, alignment, stream: None)
    copy[(3,)](described, layout)
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.launch_enter_hook.add(print)
""",
        "use()",
        [["copy", [3], {}]],
    ),
    "benchmarks and tools beside the kernels": (
        """
import triton
import triton.language as tl
import triton.profiler as proton
from triton.testing import Benchmark, do_bench, do_bench_cudagraph, perf_report
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

@perf_report(Benchmark(["n"], [1, 2], "provider", ["a"], ["A"], "plot", {}))
def bench(n, provider):
    return do_bench(lambda: kernel[(1,)](n))

@triton.jit
def kernel(n):
    pass

def use():
    try:
        kernel[(1,)](3)
        raise OutOfResources(2, 1, "shared memory")
    except (OutOfResources, PTXASError, CompilationError) as error:
        assert "Hardware limit: 1" in str(error)
""",
        "use()",
        [["kernel", [1], {}]],
    ),
}


@pytest.mark.parametrize("title", PROGRAMS)
def test_a_module_as_packages_write_it_imports_and_launches(title, tmp_path, without_triton):
    text, use, launches = PROGRAMS[title]
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    told = without_triton(f"{SERVE}\nimport program\nprogram.{use}\nprint(json.dumps(log))", paths=(tmp_path,))
    assert told == launches


def test_the_chooser_gets_the_configs_that_pruning_left(tmp_path, without_triton):
    text = PROGRAMS["configs pruned and hooked, over heuristics"][0]
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    told = without_triton(
        f"{SERVE}\nimport program\nprogram.scaled[lambda meta: (meta['n'] // meta['BLOCK'],)](1, program.Out(), None, 256)\n"
        "print(json.dumps(log))",
        paths=(tmp_path,),
    )
    given = {"BLOCK": 64, "num_warps": 4, "num_ctas": 1, "num_stages": 2, "EVEN": True, "HAS": False}
    assert told == [["scaled", [4], given]]


def test_modules_of_real_packages_import():
    """``pip install --no-deps --target FOLDER liger-kernel``, and set the variable to the folder."""
    folder = os.environ.get(PACKAGES)
    if folder is None:
        pytest.skip(f"no packages to import: {PACKAGES} names no folder")
    script = (
        "from tests.support.third_party import import_all, pretend_a_gpu\nimport json\nfrom pathlib import Path\n"
        f"pretend_a_gpu()\nprint(json.dumps(import_all(Path({folder!r}))))"
    )
    told = json.loads(run(script).splitlines()[-1])
    assert told, f"{folder} holds no module that names Triton"
    assert {name: error for name, error in told.items() if "nojit" in error or "triton" in error} == {}
    assert Path(folder).is_dir()
