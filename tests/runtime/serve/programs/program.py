"""A program that launches kernels in every way: with Triton's JIT or served, on the fake driver.

    python -m tests.runtime.serve.programs.program NAME...

makes the calls of these names, or all, and prints what the driver was handed as JSON.
"""

import json
import os
import sys
from pathlib import Path

import triton
import triton.language as tl
from nojit.runtime.serve import session
from triton.backends.nvidia.driver import CudaDriver
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.fakecuda.driver import FakeCuda
from tests.runtime.serve.programs import kernels
from tests.support.tensors import PointerTensor

MEMORY = 0x10000


class DType(str):
    """A dtype with its size, as descriptors need."""

    __slots__ = ()

    @property
    def itemsize(self):
        return int(self[-2:]) // 8


class Tensor(PointerTensor):
    """A tensor with a shape, as descriptors need."""

    shape = (256, 256)

    def __init__(self, address, dtype):
        super().__init__(address, DType(dtype))

    def stride(self):
        return (256, 1)


X, Y, OUT = (Tensor(MEMORY * number, "torch.float32") for number in (1, 2, 3))
ODD = Tensor(MEMORY + 4, "torch.float32")
HALF = Tensor(MEMORY * 4, "torch.float16")


def copy(block):
    descriptor = TensorDescriptor(X, [256, 256], [256, 1], [block, block])
    kernels.copy[(1,)](descriptor, OUT, BLOCK=block)


def warmed():
    compiled = kernels.add.warmup(X, Y, OUT, 4096, grid=(1,), BLOCK=32)
    assert (compiled.metadata.num_warps, compiled.metadata.shared) == (4, 0)
    compiled[5, 1, 1](X, Y, OUT, 4096, 32)
    assert compiled.n_regs >= 0


def hooked():
    seen = []
    kernels.add.add_pre_run_hook(lambda *args, **_: seen.append(args[3]))
    kernels.add[(1,)](X, Y, OUT, 64)
    kernels.add.pre_run_hooks.clear()
    assert seen == [64]


def watched():
    seen = []

    def enter(metadata):
        seen.append(metadata.get()["name"])

    def leave(_metadata):
        seen.append("left")

    hooks = triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook
    hooks[0].add(enter)
    hooks[1].add(leave)
    kernels.add[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](X, Y, OUT, 640)
    hooks[0].remove(enter)
    hooks[1].remove(leave)
    assert seen == ["add", "left"]


CALLS = {
    "add": lambda: kernels.add[(4,)](X, Y, OUT, 4096),
    "by name": lambda: kernels.add[4, 1](out_ptr=OUT, n=4096, x_ptr=X, y_ptr=Y, BLOCK=64),
    "unaligned": lambda: kernels.add[(4,)](ODD, Y, OUT, 4095),
    "one": lambda: kernels.add[(1,)](X, Y, OUT, 1),
    "wide": lambda: kernels.add[(1,)](X, Y, OUT, 1 << 33),
    "grid of a function": lambda: kernels.add[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]), 2)](X, Y, OUT, 640),
    "empty grid": lambda: kernels.add[(0,)](X, Y, OUT, 4096),
    "options": lambda: kernels.add[(4,)](X, Y, OUT, 4096, num_warps=8, num_stages=1),
    "run": lambda: kernels.add.run(X, Y, OUT, 4096, grid=(2, 3, 1), warmup=False),
    "warmed": warmed,
    "hooked": hooked,
    "watched": watched,
    "function": lambda: kernels.apply[(1,)](X, 1.5, FN=kernels.scaled, DTYPE=tl.float16, BLOCK=16),
    "other function": lambda: kernels.apply[(1,)](X, 1.5, FN=kernels.shifted, DTYPE=tl.float32, BLOCK=16),
    "rest": lambda: kernels.total[(1,)](OUT, X, Y, ODD),
    "tuple": lambda: kernels.pair[(1,)](X, (HALF, 7), True),
    "descriptor": lambda: copy(64),
    "tuned": lambda: [
        kernels.tuned[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](X, n) for n in (64, 5000, 64)
    ],
    "heuristics": lambda: [kernels.guessed[(1,)](X, n) for n in (48, 50)],
}


def missed():
    kernels.add[(4,)](X, Y, OUT, 4096, num_warps=1)
    kernels.unrecorded[(1,)](X, BLOCK=16)


if triton.__version__ < "3.9":
    # older versions have no params like *rest
    del CALLS["rest"]

# calls that only a test of misses makes
OTHERS = {"missed": missed}


class Timer:
    """Prefers another config for another size, so that winners differ."""

    def __init__(self):
        self.calls = 0

    def __call__(self, call, quantiles):
        call()
        self.calls += 1
        # of six trials the second and the sixth are the fastest
        return [0.5 if self.calls in (2, 6) else 1.0] * len(quantiles)


def make_driver():
    """Return Triton's driver; older versions ask torch for the device, which may lack CUDA."""
    driver, torch = CudaDriver(), sys.modules.get("torch")
    if torch is not None and driver.get_current_device is torch.cuda.current_device:
        driver.get_current_device = lambda: 0
        driver.set_current_device = lambda device: None
        driver.get_current_stream = lambda device=0: 0
        driver.get_device_capability = lambda device=0: (9, 0)
    return driver


def main(names):
    fake = FakeCuda(Path(os.environ["NOJIT_LIBCUDA"]))
    assert fake.call("cuInit", 0) == 0
    fake.add_memory(MEMORY, 1 << 20)
    if not triton.__version__.endswith("nojit"):
        # whether torch finds a GPU does not matter
        sys.modules["triton.runtime.driver"]._create_driver = make_driver
    if session._current is None:
        triton.runtime.driver.set_active(make_driver())
    timer = Timer()
    kernels.tuned.do_bench = timer
    results = {}
    for name in names or CALLS:
        before, failure = fake.launch_count(), ""
        try:
            (CALLS | OTHERS)[name]()
        except Exception as error:  # noqa: BLE001 - any failure is a result
            failure = f"{type(error).__name__}: {error}"
        results[name] = {"failure": failure, "launches": [describe(each) for each in since(fake, before)]}
    from nojit import runtime

    counted = runtime.counters()
    facts = {
        "results": results,
        "violations": fake.violations(),
        "timed": timer.calls,
        "served": [[each.function, each.launches, each.misses, each.nearest_configs] for each in counted.served],
        "missed": counted.missed,
    }
    sys.stdout.write(json.dumps(facts) + "\n")


def since(fake, before):
    """Return what was launched since a count, at most 256 ago."""
    count = fake.launch_count() - before
    return fake.launches()[-count:] if count else []


def describe(launch):
    attributes = {str(name): repr(value) for name, value in launch.attributes.items()}
    params = [param.hex() for param in launch.params]
    return [launch.symbol, *launch.grid, *launch.block, launch.shared_bytes, params, attributes]


if __name__ == "__main__":
    main(sys.argv[1:])
