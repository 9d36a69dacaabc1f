"""Memory that runs out at any allocation of a call: an error, no crash, no reference lost, and the next call works."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nojit import runtime
from nojit.runtime import _core
from nojit.runtime.errors import ArgumentError, NoMatchingVariantError
from nojit.runtime.table.table import KernelTable

from tests.fakecuda import FakeCuda
from tests.support.bundles import kernel, make_bundle
from tests.support.starve import needs_sound_python, starved
from tests.support.tables import held

pytestmark = [
    pytest.mark.usefixtures("locks_that_may_stay_held"),
    # a generator that is dropped while memory is out says so on the side
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    needs_sound_python,
]


@pytest.fixture(scope="module")
def bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    add = kernel(
        "add",
        {"x_ptr": "*{dtype}", "n": "i32", "factor": "fp32", "BLOCK": "constexpr", "EVEN": "constexpr",
         "MODE": "constexpr"},
        matrix={"dtype": ["fp16", "fp32"], "MODE": ["fast", "exact"]},
        configs=[{"BLOCK": 1024, "requires": "aligned(x_ptr, 16)"}, {"BLOCK": 64}],
        hints=[{"x_ptr": 16}],
        derived={"EVEN": "n % BLOCK == 0"},
        grid=["cdiv(n, BLOCK)"],
        launch={"global_scratch_bytes": 64, "global_scratch_align": 16},
    )  # fmt: skip
    return make_bundle(tmp_path_factory.mktemp("bundle") / "add.nojit", add)


def refused(call: Callable[..., object], *arguments: object, **named: object) -> None:
    try:
        call(*arguments, **named)
    except ArgumentError:
        return
    raise AssertionError("a wrong call went through")


def test_a_launch_that_has_its_plan(bundle_path: Path, fakecuda: FakeCuda, faketorch: ModuleType) -> None:
    add = runtime.load(bundle_path).kernel("add")
    x, n, factor, grid = faketorch.Tensor(0x4000), 12345, 2.5, (3, 1)
    # not the kernel itself: the interpreter leaks the `self` of a method whose frame it has no room for
    held = (x, n, factor, grid)
    launch: dict[str, Callable[[], object]] = {
        "the bundle's grid": lambda: add(x, n, factor, MODE="fast"),
        "a grid": lambda: add[grid](x, n, factor, MODE="fast"),
        "a grid that is computed": lambda: add[lambda meta: (meta["n"] // meta["BLOCK"],)](x, n, factor, MODE="fast"),
        "a wrong argument": lambda: refused(add, x, "12345", factor, MODE="fast"),
        "a wrong keyword": lambda: refused(add, x, n, factor, MODE="fast", FAST=1),
    }
    for name, call in launch.items():
        call()
        before = [sys.getrefcount(one) for one in held]
        for _ in starved(call):
            call()
        gc.collect()
        assert [sys.getrefcount(one) for one in held] == before, name
    counts = faketorch.counts()
    assert counts["allocated"] == counts["freed"] > 0


def test_a_first_launch(bundle_path: Path, fakecuda: FakeCuda, faketorch: ModuleType) -> None:
    x = faketorch.Tensor(0x4000)
    bundles: list[Any] = [runtime.load(bundle_path)]

    def first_launch() -> None:
        bundles[-1].kernel("add")(x, 64, 2.5, MODE="exact")

    before = sys.getrefcount(x)
    for _ in starved(first_launch):
        launched = fakecuda.launch_count()
        first_launch()
        assert fakecuda.launch_count() == launched + 1, "what failed can be tried again"
        bundles.append(runtime.load(bundle_path))
    assert sys.getrefcount(x) == before
    for bundle in bundles:
        bundle.close()


class Missing(_core.Dispatcher):
    """A kernel that no variant of serves any call. Python 3.11 keeps the arguments of a function in Python that has no room for a
    closure's cell: `_missed` is one in C, so that all references are the binding's.
    """

    # takes any arguments, and returns a str: the call was made elsewhere
    _missed = staticmethod("".format)

    def __init__(self, table: KernelTable) -> None:
        self.table, self.ids = table, _core.Ids()
        super().__init__("k", tuple((param.name, param.constexpr) for param in table.params), (), self.ids)

    def _prepare(self, _device: int) -> _core.Spec:
        return _core.Spec(self.table.handle(), 0, self.ids, 90, None, "here")

    def _refuse(self, _device: int, _facts: object) -> None:
        raise NoMatchingVariantError("nothing serves it")


def test_a_call_that_nothing_serves(fakecuda: FakeCuda, faketorch: ModuleType) -> None:
    params = {"x": "*fp16", "n": "i32", "factor": "fp32", "MODE": "constexpr"}
    missing = Missing(held(kernel("k", params, matrix={"MODE": ["fast"]}).table))
    x, n, factor, mode, grid = faketorch.Tensor(0x4000), 12345, 2.5, "slow", (3, 1)
    given = (x, n, factor, mode, grid)

    def call() -> None:
        missing[grid](x, n, factor, MODE=mode)

    call()
    before = [sys.getrefcount(one) for one in given]
    for allocation in starved(call):
        gc.collect()
        assert [sys.getrefcount(one) for one in given] == before, allocation
    call()


IMPORTS = """
import _testcapi
from importlib.util import find_spec, module_from_spec
import nojit.runtime.errors
spec, refused = find_spec("nojit.runtime._core"), 0
for allocation in range(100_000):
    module = module_from_spec(spec)
    _testcapi.set_nomemory(allocation, allocation + 1)
    try:
        spec.loader.exec_module(module)
        break
    # CPython 3.11 forgets to raise where it has no room for the name of a type, and raises another error for a lock
    except (MemoryError, SystemError):
        refused += 1
    except RuntimeError as error:
        if str(error) != "can't allocate lock":
            raise
        refused += 1
    finally:
        _testcapi.remove_mem_hooks()
# a lack of memory that is made up for ends it sooner: for a text that is not interned, say
print(refused > 0, module.Dispatcher("k", (("x", False),), (), module.Ids()).name)
try:
    spec.loader.exec_module(module_from_spec(spec))
except ImportError as error:
    print(error)
"""


def test_an_import_may_be_tried_again_until_it_is_done() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["True k", "expected nojit.runtime to be imported once in a process"], (
        done.stderr
    )
