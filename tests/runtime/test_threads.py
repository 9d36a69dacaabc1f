"""Many threads in the runtime at once: each launch gets its own thread's arguments, and nothing is lost or leaks.

What is shared is shared on purpose: kernels, bound kernels, launchers, tensors, descriptors. On a Python without the GIL
the threads run side by side; on others the interpreter is told to switch between them often.
"""

from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from nojit import runtime
from nojit.runtime.errors import ArgumentError
from nojit.runtime.kernel import Kernel
from nojit.runtime.observe import hooks

from tests.fakecuda import FakeCuda
from tests.fakecuda.driver import Launch
from tests.runtime.conftest import VECTOR_ADD, Make
from tests.support.threads import Pace, run_together

THREADS = 8
# of each thread in a batch: all launches of a batch fit the fake driver's record of 256
CALLS = 28
BATCHES = 8
BASE = 0x10_0000


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def address_of(number: int) -> int:
    """The address that goes with a call's number: every other one is divisible by 16."""
    return BASE + 8 * number


@dataclass(frozen=True, slots=True)
class Shared:
    """What all threads call."""

    plain: Kernel
    bound: Any
    tupled: Kernel
    described: Kernel
    scratch: Kernel
    tensor: Callable[..., Any]

    def call(self, number: int) -> int:
        """Make one of the calls below; return how many launches that should be."""
        return CALLS_BY_KIND[number % len(CALLS_BY_KIND)](self, number)


@pytest.fixture
def shared(make: Make, tensor: Any) -> Shared:
    plain = make(name="plain", **VECTOR_ADD)
    return Shared(
        plain=plain,
        bound=plain.bind((2,), BLOCK=256),
        tupled=make({"pair": "(*fp16,(i32,fp32))", "n": "i32"}, name="tupled", hints=[{"pair.0": 16}]),
        described=make({"block": "tensordesc<fp16[64,64]>", "n": "i32"}, name="described"),
        scratch=make({"x": "*fp16", "n": "i32"}, name="scratch", launch={"global_scratch_bytes": 64}),
        tensor=tensor,
    )


def test_no_import_brings_the_gil_back() -> None:
    lines = [
        "import sys",
        "import nojit.runtime.bundle.zstd",
        "import nojit.runtime.kernel",
        "import nojit.runtime.loader",
        "import nojit.runtime.observe.hooks",
    ]
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        lines.append("assert not sys._is_gil_enabled()")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    subprocess.run([sys.executable, "-W", "error", "-c", "; ".join(lines)], check=True, env=environment)


# the calls: each number is also the call's `n`, so that the record of a launch says what else it must have been given


def pair(shared: Shared, number: int) -> tuple[Any, Any]:
    dtype = "float16" if number % 3 else "float32"
    return shared.tensor(address_of(number), dtype), shared.tensor(address_of(number) + 8, dtype)


def with_grid(shared: Shared, number: int) -> int:
    shared.plain[(number % 5 + 1, 2)](*pair(shared, number), number)
    return 1


def with_the_bundles_grid(shared: Shared, number: int) -> int:
    x, y = pair(shared, number)
    shared.plain(y=y, n=number, x=x, BLOCK=1024)
    return 1


def with_a_computed_grid(shared: Shared, number: int) -> int:
    shared.plain[lambda meta: (meta["n"] % 7 + 1,)](*pair(shared, number), number)
    return 1


def with_what_is_bound(shared: Shared, number: int) -> int:
    shared.bound(*pair(shared, number), number)
    return 1


def with_a_tuple(shared: Shared, number: int) -> int:
    shared.tupled[(1,)]((shared.tensor(address_of(number)), (number, float(number))), number)
    return 1


def with_a_descriptor(shared: Shared, number: int) -> int:
    base = shared.tensor(16 * address_of(number % 5))
    shared.described[(1,)](runtime.TensorDescriptor(base, (number % 6 + 1, 64), (64, 1), (64, 64)), number)
    return 1


def with_scratch(shared: Shared, number: int) -> int:
    shared.scratch[(1,)](shared.tensor(address_of(number)), number)
    return 1


def of_a_fresh_kernel(shared: Shared, number: int) -> int:
    Kernel("plain", shared.plain._bundles.bundles)[(1,)](*pair(shared, number), number)
    return 1


def with_no_launch(shared: Shared, number: int) -> int:
    x, y = pair(shared, number)
    with pytest.raises(ArgumentError, match="argument n of kernel plain"):
        shared.plain[(1,)](x, y, "12")
    with pytest.raises(ArgumentError, match="unexpected argument 'm'"):
        shared.plain.bind((1,))(x, y, m=1)
    assert shared.plain.explain(x, y, number).chosen
    assert shared.plain.preload() == len(shared.plain._bundles.bundles[0].table("plain"))
    return 0


CALLS_BY_KIND = (
    with_grid,
    with_the_bundles_grid,
    with_a_computed_grid,
    with_what_is_bound,
    with_a_tuple,
    with_a_descriptor,
    with_scratch,
    of_a_fresh_kernel,
    with_no_launch,
)


def check_plain(launch: Launch) -> None:
    x, y, number = launch.ints()[:3]
    assert (x, y) == (address_of(number), address_of(number) + 8)
    kind = CALLS_BY_KIND[number % len(CALLS_BY_KIND)]
    grids = {
        with_grid: (number % 5 + 1, 2, 1),
        with_the_bundles_grid: (-(-number // 1024), 1, 1),
        with_a_computed_grid: (number % 7 + 1, 1, 1),
        with_what_is_bound: (2, 1, 1),
        of_a_fresh_kernel: (1, 1, 1),
    }
    assert launch.grid == grids[kind]


def check_tupled(launch: Launch) -> None:
    x, first, scale, number = launch.ints()[:4]
    assert (x, first) == (address_of(number), number)
    assert launch.params[2] == struct.pack("<f", number), scale


def check_described(launch: Launch) -> None:
    rows, columns, row_stride, stride, number = launch.ints()[1:6]
    assert (rows, columns, row_stride, stride) == (number % 6 + 1, 64, 64, 1)
    made = launch.tensor_map(0)
    assert (made.address, made.dims) == (16 * address_of(number % 5), (64, rows))


def check_scratch(launch: Launch) -> None:
    x, number, memory = launch.ints()[:3]
    assert x == address_of(number)
    assert memory


CHECKS = {"plain": check_plain, "tupled": check_tupled, "described": check_described, "scratch": check_scratch}


def run_batch(shared: Shared, fakecuda: FakeCuda, first: int) -> None:
    """Let every thread make calls, and check what the driver saw of each."""
    counts = [0] * THREADS
    start = fakecuda.launch_count()

    def work(thread: int) -> None:
        for call in range(CALLS):
            counts[thread] += shared.call(first + call * THREADS + thread)

    run_together(work, THREADS)
    launches = fakecuda.launches()[start - fakecuda.launch_count() :]
    assert len(launches) == sum(counts)
    for launch in launches:
        CHECKS[launch.symbol](launch)


def test_every_launch_gets_its_own_threads_arguments(shared: Shared, fakecuda: FakeCuda, faketorch: ModuleType) -> None:
    fakecuda.watch_memory(faketorch.watch())
    for batch in range(BATCHES):
        run_batch(shared, fakecuda, 1 + batch * THREADS * CALLS)
    fakecuda.watch_memory(0)
    counts = faketorch.counts()
    assert counts["allocated"] == counts["freed"] > 0


def test_no_reference_is_lost(shared: Shared, fakecuda: FakeCuda) -> None:
    objects = (x := shared.tensor(0x4000), y := shared.tensor(0x5000), (1,), (x, (5, 0.5)), shared.plain, shared.bound)
    descriptor = runtime.TensorDescriptor(x, (64, 64), (64, 1), (64, 64))

    def work(_: int) -> None:
        for _ in range(200):
            shared.plain[objects[2]](x, y, 5)
            shared.bound(x, y, 5)
            shared.tupled[objects[2]](objects[3], 5)
            shared.described[objects[2]](descriptor, 5)
            shared.scratch[objects[2]](x, 5)
            with pytest.raises(ArgumentError):
                shared.plain[objects[2]](x, objects[3], 5)

    run_together(work, THREADS)
    gc.collect()
    before = [sys.getrefcount(one) for one in (*objects, descriptor)]
    run_together(work, THREADS)
    gc.collect()
    after = [sys.getrefcount(one) for one in (*objects, descriptor)]
    assert [abs(new - old) < 50 for new, old in zip(after, before, strict=True)] == [True] * len(after), (before, after)
    assert fakecuda.launch_count() == 2 * THREADS * 200 * 5


def test_kernels_are_collected_while_others_launch(shared: Shared, fakecuda: FakeCuda) -> None:
    x, y = pair(shared, 1)

    def work(thread: int) -> None:
        for number in range(40):
            fresh = Kernel("plain", shared.plain._bundles.bundles)
            cycle: list[Any] = [fresh.bind((1,), BLOCK=256)]
            cycle.append(fresh[lambda _, cycle=cycle: (len(cycle),)])
            for launcher in cycle:
                launcher(x, y, 16 * number + 16)
            if thread == 0 and number % 10 == 0:
                gc.collect()

    run_together(work, THREADS)
    assert fakecuda.launch_count() == THREADS * 40 * 2


def test_hooks_come_and_go_while_others_launch(shared: Shared, fakecuda: FakeCuda) -> None:
    entered, left, pace = [0] * THREADS, [0] * THREADS, Pace()
    own = threading.local()

    def work(thread: int) -> None:
        own.thread = thread
        if thread == 0:
            for _ in pace:
                handle = hooks.add(lambda _: count(entered), lambda _: count(left))
                hooks.remove(handle)
            return
        with pace:
            for number in range(1, 400):
                with_what_is_bound(shared, number)
                pace.step()

    def count(calls: list[int]) -> None:
        calls[own.thread] += 1

    run_together(work, THREADS)
    assert fakecuda.launch_count() == (THREADS - 1) * 399
    assert left == entered, "whoever enters leaves"
    assert sum(entered) <= fakecuda.launch_count()


def test_the_allocator_changes_while_others_launch(shared: Shared, fakecuda: FakeCuda) -> None:
    pace = Pace()

    def allocate(size: int, alignment: int, stream: int) -> Any:
        return shared.tensor(0x7000_0000, "int8", (size,))

    def work(thread: int) -> None:
        if thread == 0:
            for _ in pace:
                runtime.set_allocator(allocate)
                runtime.set_allocator(None)
            return
        with pace:
            for number in range(1, 200):
                with_scratch(shared, number)
                pace.step()

    run_together(work, THREADS)
    assert fakecuda.launch_count() == (THREADS - 1) * 199


@dataclass(slots=True)
class ListDescriptor:
    """A descriptor of lists, which Triton's own class allows."""

    base: Any
    shape: list[int]
    strides: list[int]
    block_shape: list[int]


def test_a_descriptor_that_changes_meanwhile_is_read_whole_or_refused(shared: Shared, fakecuda: FakeCuda) -> None:
    descriptor = ListDescriptor(shared.tensor(0x4000), [64, 64], [64, 1], [64, 64])
    pace = Pace()

    def work(thread: int) -> None:
        if thread == 0:
            for _ in pace:
                descriptor.shape.append(1 << 40)
                descriptor.strides.clear()
                descriptor.shape.pop()
                descriptor.strides[:] = [64, 1]
            return
        with pace:
            for number in range(200):
                try:
                    shared.described[(1,)](descriptor, number)
                except ArgumentError as error:
                    assert "descriptor" in str(error)  # noqa: PT017 - both outcomes are right
                pace.step()

    run_together(work, THREADS)
    for launch in fakecuda.launches():
        assert launch.ints()[1:5] == (64, 64, 64, 1)
