"""What one launch costs the host, counted where timing would only be noise: instructions, objects, references."""

from __future__ import annotations

import gc
import shutil
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import repeat, starmap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from nojit.aot.bench.cases import CASES
from nojit.runtime import loader

from tests.fakecuda import FakeCuda
from tests.support.bundles import make_bundle
from tests.support.instructions import (
    PYTHON,
    count,
    count_loads,
    known_figures,
    launch_kernel,
    launch_scenarios,
    remembered_scenarios,
    served_scenarios,
    tuning_scenarios,
    variant_scenarios,
)

RECORD = "if that is meant to be so: python -m tests.support.instructions"
# of a figure that is recorded for this Python, either way
TOLERANCE = 0.05
# over the largest figure of any Python, for one whose figures nobody has recorded
UNRECORDED = 1.3
VARIANTS = (1, 100, 10_000)
# that looking a config up may add to a launch, with a key of two expressions
LOOK_UP = 200
# the share that a served function of Triton may add to a launch of its kernel
SERVED = 1.1
# that finding a call of three tensors and a number in a memo may add, but for what the framework does: 2,700 with Python 3.11,
# which calls the framework in fewer instructions than 3.12 and 3.13, 3,180 and 3,050
RECALL = 3300

needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="counts instructions with valgrind")

Setup = tuple[Any, tuple[Any, ...], str]
"""A kernel, its arguments, and how they are spelled."""


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The instructions of one launch, by scenario."""
    scenarios = (
        *launch_scenarios(),
        *variant_scenarios(VARIANTS),
        *tuning_scenarios(),
        *remembered_scenarios(),
        *served_scenarios(),
    )
    return count(tmp_path_factory.mktemp("callgrind"), scenarios, VARIANTS)


@pytest.mark.slow
@needs_valgrind
@pytest.mark.parametrize("name", [scenario.name for scenario in launch_scenarios()])
def test_a_launch_takes_the_instructions_that_are_recorded(counted: dict[str, float], name: str) -> None:
    known = known_figures()
    if PYTHON not in known:
        most = max(figures[name] for figures in known.values())
        assert counted[name] <= UNRECORDED * most, f"no figures are recorded for Python {PYTHON}: {RECORD}"
        return
    was = known[PYTHON][name]
    change = counted[name] / was - 1
    assert abs(change) <= TOLERANCE, (
        f"{name}: {counted[name]:.0f} instructions, {was} recorded ({change:+.1%}); {RECORD}"
    )


@pytest.mark.slow
@needs_valgrind
def test_a_launch_costs_the_same_however_many_variants_there_are(counted: dict[str, float]) -> None:
    found = {scenario.name: counted[scenario.name] for scenario in variant_scenarios(VARIANTS)}
    assert max(found.values()) <= 1.01 * min(found.values()), found


@pytest.mark.slow
@needs_valgrind
def test_loading_a_variant_costs_the_same_however_many_are_loaded(tmp_path: Path) -> None:
    few, many = count_loads(tmp_path, (500, 3_000)).values()
    # walking a list of all plans would add a tenth
    assert 0 < many <= 1.04 * few


@pytest.mark.slow
@needs_valgrind
def test_looking_a_config_up_costs_little(counted: dict[str, float]) -> None:
    for way in ("kernel[grid]", "kernel", "bound"):
        assert counted[f"{way}, tuned"] <= counted[f"{way}, untuned"] + LOOK_UP


@pytest.mark.slow
@needs_valgrind
def test_a_remembered_call_costs_little_more_than_its_launch(counted: dict[str, float]) -> None:
    assert counted["remembered"] <= counted["not remembered"] + RECALL


@pytest.mark.slow
@needs_valgrind
@pytest.mark.parametrize("arguments", [4, 12])
def test_a_served_function_of_triton_costs_a_tenth_more_than_its_kernel(
    counted: dict[str, float], arguments: int
) -> None:
    assert counted[f"served, {arguments} arguments"] <= SERVED * counted[f"not served, {arguments} arguments"]


@pytest.mark.slow
@needs_valgrind
def test_binding_a_grid_takes_work_away(counted: dict[str, float]) -> None:
    for case in CASES.values():
        name = f"{case.arguments} arguments"
        assert counted[f"bound, {name}"] <= counted[f"kernel, {name}"] <= counted[f"kernel[grid], {name}"]


@pytest.fixture(params=CASES.values(), ids=lambda case: case.kernel)
def setup(request: pytest.FixtureRequest, tmp_path: Path, fakecuda: FakeCuda, faketorch: ModuleType) -> Iterator[Setup]:
    """Set a case up on the fake driver."""
    case = request.param
    with loader.load(make_bundle(tmp_path / "one.nojit", launch_kernel(case))) as bundle:
        tensors = [faketorch.Tensor(0x10000 * (place + 1), "float32") for place, _ in enumerate(case.tensors)]
        # numbers that no one else holds
        numbers = [int(str(1600 * value)) for value in case.numbers.values()]
        yield bundle.kernel(case.kernel), (*tensors, *numbers), case.positional()


def loop_of(bound: Any, arguments: tuple[Any, ...], spelled: str, statement: str = "") -> Callable[..., Any]:
    """Make a function that launches so many times between two calls; nothing in it makes an object but the calls."""
    names = dict(zip(spelled.split(", "), arguments, strict=True)) | {"bound": bound}
    body = (
        f"def run(rounds, begin, end):\n    begin()\n    for _ in rounds: {statement or f'bound({spelled})'}\n    end()"
    )
    exec(body, names)
    loop: Callable[..., Any] = names["run"]
    return loop


def nothing() -> None:
    pass


def without_memory(loop: Callable[..., Any], rounds: Iterator[Any]) -> None:
    """Run a loop in which every allocation of Python's fails."""
    testcapi = pytest.importorskip("_testcapi", reason="this Python was built without its test modules")

    def begin() -> None:
        testcapi.set_nomemory(0, 0)

    # objects that are kept for reuse would need no memory either
    gc.collect()
    try:
        loop(rounds, begin, testcapi.remove_mem_hooks)
    finally:
        testcapi.remove_mem_hooks()


def test_a_bound_launch_needs_no_memory(setup: Setup, fakecuda: FakeCuda) -> None:
    kernel, arguments, spelled = setup
    bound = kernel.bind((1,))
    loop_of(bound, arguments, spelled)(repeat(None, 100), nothing, nothing)
    launched = fakecuda.launch_count()
    # `starmap` passes a tuple's items where they lie; the bytecode of a call may copy many, to memory that it asks for
    without_memory(loop_of(bound, arguments, spelled, "None"), starmap(bound, repeat(arguments, 1000)))
    assert fakecuda.launch_count() == launched + 1000
    with pytest.raises(MemoryError):
        without_memory(loop_of(bound, arguments, spelled, "[bound]"), repeat(None, 1000))


def peak_bytes(loop: Callable[..., Any]) -> int:
    """Return how far above its beginning a loop's memory rose."""
    seen: list[tuple[int, int]] = []
    gc.collect()
    tracemalloc.start(1)
    try:
        # uses up the objects that are kept for reuse: who needs one then allocates it where tracemalloc sees that
        taken = [tracemalloc.get_traced_memory() for _ in range(200)]
        seen.extend([(0, 0)] * 2)
        loop(repeat(None, 1000), lambda: _first(seen), lambda: _last(seen))
    finally:
        tracemalloc.stop()
    del taken
    return seen[1][1] - seen[0][0]


def _first(seen: list[tuple[int, int]]) -> None:
    seen[0] = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()


def _last(seen: list[tuple[int, int]]) -> None:
    seen[1] = tracemalloc.get_traced_memory()


def test_a_bound_launch_allocates_no_more_than_a_call_that_does_nothing(setup: Setup, faketorch: ModuleType) -> None:
    kernel, arguments, spelled = setup
    bound = kernel.bind((1,))
    launches = loop_of(bound, arguments, spelled)
    launches(repeat(None, 100), nothing, nothing)
    # a function in C; from 3.14 on the interpreter itself allocates to pass on more than ten arguments
    does_nothing = loop_of(faketorch.take, arguments, spelled)
    does_nothing(repeat(None, 100), nothing, nothing)
    idle = peak_bytes(loop_of(bound, arguments, spelled, "None"))
    assert peak_bytes(loop_of(bound, arguments, spelled, "bound.__doc__.encode()")) > idle, "the measure sees objects"
    assert peak_bytes(launches) == peak_bytes(does_nothing)


@pytest.mark.slow
@pytest.mark.parametrize("setup", [CASES[4]], indirect=True, ids=["launch_4"])
def test_a_million_launches_keep_no_reference(setup: Setup, fakecuda: FakeCuda, faketorch: ModuleType) -> None:
    kernel, arguments, spelled = setup
    bound, grid = kernel.bind((1,)), (1,)
    loops = {
        900_000: loop_of(bound, arguments, spelled),
        100_000: loop_of(
            kernel, (*arguments, grid), f"{spelled}, grid", "bound[grid](x_ptr, y_ptr, out_ptr, n, BLOCK=1024)"
        ),
    }
    for loop in loops.values():
        loop(repeat(None, 100), nothing, nothing)
    gc.collect()
    ours, everyones = (*arguments, bound, kernel, grid), (faketorch.Tensor, None, True, 1024, (1,))
    before = [[sys.getrefcount(one) for one in held] for held in (ours, everyones)]
    blocks, launched = sys.getallocatedblocks(), fakecuda.launch_count()
    for times, loop in loops.items():
        loop(repeat(None, times), nothing, nothing)
    gc.collect()
    assert abs(sys.getallocatedblocks() - blocks) < 100
    after = [[sys.getrefcount(one) for one in held] for held in (ours, everyones)]
    assert after[0] == before[0]
    # others take and drop these meanwhile
    assert [new for new, old in zip(after[1], before[1], strict=True) if abs(new - old) > 100] == []
    assert fakecuda.launch_count() == launched + 1_000_000
