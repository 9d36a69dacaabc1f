"""Memory that runs out at any allocation of a launch, however its arguments, grid and stream are spelled."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nojit import runtime
from nojit.runtime.errors import ArgumentError, DriverError, NojitError
from nojit.runtime.fallback import jit_functions
from nojit.runtime.fallback import policy as miss_policy
from nojit.runtime.observe import events, hooks

from tests.fakecuda import FakeCuda
from tests.runtime.fallback.test_jit import Function, make_torch
from tests.support.bundles import kernel, make_bundle
from tests.support.starve import needs_sound_python, starved
from tests.support.tensors import InterfaceTensor, OldTorch, PointerTensor, StreamObject, WrappingTensor

pytestmark = [
    pytest.mark.usefixtures("locks_that_may_stay_held"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    needs_sound_python,
]


class Real(float):
    """A float of another class."""


class Index:
    """Has ``__index__`` and nothing else."""

    def __index__(self) -> int:
        return 2**40


@pytest.fixture(scope="module")
def bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    params = {"x": "*fp16", "y": "*fp16?", "n": "i64", "scale": "fp16", "flag": "i1", "MODE": "constexpr"}
    add = kernel(
        "add", params, matrix={"MODE": ["fast", (1, 2)]}, hints=[{"x": 16}], grid=["n"], defaults={"scale": 1.0}
    )
    wide = kernel(
        "wide",
        {"x": "*fp16"},
        configs=[{"num_warps": 4, "num_ctas": 16}],
        launch={"shared_bytes": 60_000, "pdl": True, "global_scratch_bytes": 64, "profile_scratch_bytes": 8},
    )
    described = kernel("described", {"n": "i32", "block": "tensordesc<fp16[64,64]>"})
    tupled = kernel("tupled", {"group": "(*fp16,(i32,none),fp32)"}, hints=[{"group.0": 16}])
    rest = kernel("rest", {"x": "*fp16", "rest": "(i32,='fast',(=3,*fp16))"}, defaults={"rest": ()})
    return make_bundle(tmp_path_factory.mktemp("bundle") / "add.nojit", add, wide, described, tupled, rest)


def is_refused(kind: type[NojitError], call: Callable[[], object]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError("a wrong call went through")


def spellings(bundle: Any, faketorch: ModuleType, fakecuda: FakeCuda) -> dict[str, Callable[[], object]]:
    """Calls that take every way through the core."""
    add, wide, rest = (bundle.kernel(name) for name in ("add", "wide", "rest"))
    x, other, interface = faketorch.Tensor(0x1000), PointerTensor(0x1000), InterfaceTensor(0x4000_0000)
    stream, grid = StreamObject(fakecuda.stream()), (2, 3)
    slow, newer = faketorch.SlowTensor(0x1000), faketorch.NewerTensor(0x1000)
    large, real, index = 2**40, Real(2.0), Index()
    return {
        "data_ptr": lambda: add[grid](other, None, large, real, True, MODE="fast", stream=0),
        "array interface": lambda: add[grid](interface, None, large, 1.0, True, MODE="fast", stream=0),
        "slow exchange": lambda: add[grid](slow, newer, large, 1.0, True, MODE="fast"),
        "index": lambda: add[grid](x, None, index, 1.0, True, MODE="fast"),
        "address": lambda: add[grid](0x1000, 0x2000, large, flag=True, MODE="fast", stream=0),
        "tuple for a constexpr": lambda: add[grid](x, x, large, 1.0, False, MODE=(1, 2)),
        "names": lambda: add[grid](flag=False, n=large, y=None, x=x, MODE="fast", scale=1.0, num_warps=4),
        "rest arguments and constants": lambda: rest[grid](x, 7, "fast", (3, x)),
        "rest arguments and a keyword": lambda: rest[grid](x, 7, "fast", (3, x), stream=0),
        "a constant that is none": lambda: is_refused(NojitError, lambda: rest[grid](x, 7, "slow", (3, x))),
        "a list for a grid": lambda: add[[2, 3]](x, x, large, 1.0, False, MODE="fast"),
        "a callable grid": lambda: add[lambda meta: [meta["n"] >> 39]](x, x, large, 1.0, False, MODE="fast"),
        "stream": lambda: add[grid](x, x, large, 1.0, False, MODE="fast", stream=stream),
        "scratch and attributes": lambda: wide[grid](x),
        "an error of the driver": lambda: is_refused(DriverError, lambda: add[grid](x, x, 1, 1.0, True, MODE="fast", stream=8)),
        "an error of the grid": lambda: is_refused(NojitError, lambda: add(x, x, 2**40, 1.0, True, MODE="fast")),
        "nothing that matches": lambda: is_refused(NojitError, lambda: add[grid](x, x, 1, 1.0, True, MODE="slow")),
        "a float that does not fit": lambda: is_refused(NojitError, lambda: add[grid](x, x, 1, 1e9, True, MODE="fast")),
    }  # fmt: skip


def test_a_launch_in_any_spelling(bundle_path: Path, fakecuda: FakeCuda, faketorch: ModuleType) -> None:
    fakecuda.add_memory(0x4000_0000, 4096)
    bundle = runtime.load(bundle_path)
    calls = spellings(bundle, faketorch, fakecuda)
    for name, spelled in calls.items():
        call = with_starved_tensors(spelled)
        call()
        held = [cell.cell_contents for cell in spelled.__closure__ or () if not callable(cell.cell_contents)]
        before = [sys.getrefcount(one) for one in held]
        for _ in starved(call):
            depth = fakecuda.context()
            call()
            assert fakecuda.context() == depth == (0, None), name
        gc.collect()
        assert [sys.getrefcount(one) for one in held] == before, name
    counts = faketorch.counts()
    assert counts["allocated"] == counts["freed"] > 0


def test_a_launch_of_what_triton_takes(
    bundle_path: Path, fakecuda: FakeCuda, faketorch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = OldTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    fakecuda.pin_memory(0x7100_0000, 4096, 0x5100_0000)
    torch.streams[0] = fakecuda.stream()
    old, host = torch.Tensor(0x1000, "torch.float16"), faketorch.Tensor(0x7100_0000, device_type=1)
    wrapping, ready = WrappingTensor(old, 0x1000), InterfaceTensor(0x5100_0000, stream=None)
    fakecuda.add_memory(0x5100_0000, 4096)
    add, grid = runtime.load(bundle_path).kernel("add"), (2, 3)
    calls: dict[str, Callable[[], object]] = {
        "a tensor without the exchange API": lambda: add[grid](old, None, 5, 1.0, True, MODE="fast"),
        "a wrapper": lambda: add[grid](wrapping, None, 5, 1.0, True, MODE="fast"),
        "an array that is ready": lambda: add[grid](ready, None, 5, 1.0, True, MODE="fast"),
        "pinned memory": lambda: add[grid](host, None, 5, 1.0, True, MODE="fast"),
        "other numbers": lambda: add[grid](old, None, True, 1, 1, MODE="fast"),
        "an option as it was built": lambda: add[grid](old, None, 5, 1.0, True, MODE="fast", enable_fp_fusion=True),
        "run": lambda: add.run(old, None, 5, 1.0, True, grid=grid, MODE="fast"),
    }
    for name, call in calls.items():
        call()
        launched = fakecuda.launch_count()
        for _ in starved(with_starved_tensors(call)):
            call()
        assert fakecuda.launch_count() > launched, name


def with_starved_tensors(call: Callable[[], object]) -> Callable[[], None]:
    """Let a tensor that could not be asked for want of memory count as starved."""

    def starving() -> None:
        try:
            call()
        except ArgumentError as error:
            if not isinstance(error.__cause__, MemoryError):
                raise
            raise MemoryError from error

    return starving


def test_a_call_that_the_jit_makes(
    bundle_path: Path, fakecuda: FakeCuda, faketorch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tensor(faketorch.Tensor):  # type: ignore[name-defined,misc] # the fake framework is compiled by the tests
        def data_ptr(self) -> int:
            return 0x1000

    function = Function("x", "y", "n", "scale", "flag", "MODE")
    monkeypatch.setattr(jit_functions, "_sources", {("", "add"): function})
    monkeypatch.setattr(miss_policy, "policy", lambda: "jit")
    # CPython 3.11 forgets to raise in the class of a log's records
    monkeypatch.setattr(events, "_logger", lambda level: None)
    monkeypatch.setitem(sys.modules, "torch", make_torch())
    x, grid, stream = Tensor(0x1000), (2, 3), fakecuda.stream()
    add = runtime.load(bundle_path).kernel("add")
    bound = add.bind(lambda meta: (meta["n"],), y=None, MODE="slow", stream=stream)

    def call() -> None:
        add[grid](x, None, 5, 1.0, True, MODE="slow")
        bound(x, n=7, flag=True)

    call()
    # references are not counted: where CPython 3.11 has no room for a closure's cell, it keeps the arguments of its function
    for _ in starved(call):
        function.calls.clear()
        call()
        assert [called for called, _ in function.calls] == [(2, 3, 1), (7,)]
    assert fakecuda.launch_count() == 0


def other_launches(bundle: Any, x: Any) -> dict[str, Callable[[], object]]:
    """Launches with what stands beside plain arguments."""
    tupled, described, wide = (bundle.kernel(name) for name in ("tupled", "described", "wide"))
    descriptor = runtime.TensorDescriptor(x, (5, 64), (64, 1), (64, 64))
    group, rows = (x, (5, None), 1.0), iter(range(1, 10_000))
    bound = bundle.kernel("add").bind((2,), n=5, MODE="fast")

    def hooked() -> None:
        handle = hooks.add(lambda info: info.variant, lambda info: info.kernel)
        try:
            tupled[(1,)](group)
        finally:
            hooks.remove(handle)

    def allocated() -> None:
        runtime.set_allocator(lambda *_: 0x7000_0000)
        try:
            wide[(2,)](x)
        finally:
            runtime.set_allocator(None)

    return {
        "a tuple": lambda: tupled[(1,)](group),
        "a descriptor": lambda: described[(1,)](5, descriptor),
        "a new descriptor": lambda: described[(1,)](
            5, runtime.TensorDescriptor(x, (next(rows), 64), (64, 1), (64, 64))
        ),
        "a bound kernel": lambda: bound(x, None, scale=1.0, flag=True),
        "binding": lambda: bundle.kernel("add").bind((2,), n=5, MODE="fast", x=x)(y=None, scale=1.0, flag=True),
        "an allocator": allocated,
        "hooks": hooked,
    }


def test_a_launch_of_any_kind(bundle_path: Path, fakecuda: FakeCuda, faketorch: ModuleType) -> None:
    bundle, x = runtime.load(bundle_path), faketorch.Tensor(0x1000)
    try:
        for name, call in other_launches(bundle, x).items():
            call()
            for _ in starved(call):
                before = fakecuda.launch_count()
                call()
                assert fakecuda.launch_count() == before + 1, name
                assert fakecuda.context() == (0, None), name
    finally:
        runtime.set_allocator(None)
        for handle in hooks._handles:
            hooks.remove(handle)
    assert hooks._handles == ()


def test_open_preload_and_explain(bundle_path: Path, fakecuda: FakeCuda, faketorch: ModuleType) -> None:
    x, path = faketorch.Tensor(0x1000), str(bundle_path)

    def open_and_preload() -> None:
        # for a path that is no str, CPython's `os.fspath` says that it has the wrong type where it has no room to look for its method
        bundle = runtime.load(path)
        try:
            assert bundle.kernel("add").preload(0) == 8
        finally:
            bundle.close()

    bundle = runtime.load(bundle_path)
    add = bundle.kernel("add")
    calls: dict[str, Callable[[], object]] = {
        "preload": open_and_preload,
        "explain": lambda: add.explain(x, None, 1, 1.0, True, MODE="fast"),
        "fits": lambda: add.fits(0),
    }
    for call in calls.values():
        call()
        for _ in starved(call):
            call()
    bundle.close()
