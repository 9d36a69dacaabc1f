"""Many threads at a driver that answers late: each image is loaded once, each variant gets one plan, no call is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.runtime import loader
from nojit.runtime.errors import DriverError
from nojit.runtime.kernel import Kernel

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import VECTOR_ADD, Make
from tests.support.bundles import kernel, make_bundle

THREADS = 32
# whatever a first launch calls; what the driver has not is left out by name
SLOW = (
    "cuDeviceGetAttribute",
    "cuCtxGetCurrent",
    "cuCtxPushCurrent_v2",
    "cuLibraryLoadData",
    "cuLibraryGetKernel",
    "cuKernelGetParamInfo",
    "cuKernelGetFunction",
    "cuKernelSetAttribute",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuTensorMapEncodeTiled",
)


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """Run `work` with each number in a thread of its own, all let go together; return what they returned or raised."""
    barrier = threading.Barrier(THREADS)
    results: list[Any] = [None] * THREADS

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = work(number)
        except Exception as error:  # noqa: BLE001 - told to the test's thread
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return results


@pytest.fixture
def slow(fakecuda: FakeCuda) -> FakeCuda:
    for function in SLOW:
        fakecuda.delay(function, 60)
    return fakecuda


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(row, device) of each plan that is made."""
    made: list[tuple[int, int]] = []
    original = Kernel._plan

    def note(self: Kernel, *args: Any) -> Any:
        made.append(args[-2:])
        return original(self, *args)

    monkeypatch.setattr(Kernel, "_plan", note)
    return made


def test_threads_share_each_variants_plan_and_image(
    make: Make, tensor: Any, slow: FakeCuda, plans: list[tuple[int, int]]
) -> None:
    add = make(launch={"shared_bytes": 60_000})

    def launch(number: int) -> None:
        # two addresses, two dtypes, two devices: eight plans, four images
        address, dtype = (0x1000, 0x1008)[number & 1], ("float16", "float32")[number >> 1 & 1]
        x = tensor(address, dtype, device=number >> 2 & 1)
        add[(1,)](x, tensor(0x2000, dtype, device=number >> 2 & 1), 16)

    assert at_once(launch) == [None] * THREADS
    assert slow.launch_count() == THREADS
    assert len(plans) == len(set(plans)) == 8
    assert slow.calls("cuLibraryLoadData") == slow.calls("cuLibraryGetKernel") == 4
    assert slow.calls("cuKernelSetAttribute") == 16, "twice for each kernel and device"
    assert len({(launch.kernel, launch.device) for launch in slow.launches()}) == 8


def test_threads_preload_and_launch_at_once(make: Make, tensor: Any, slow: FakeCuda) -> None:
    add = make()

    def work(number: int) -> int | None:
        return add.preload(number >> 1 & 1) if number & 1 else add[(1,)](tensor(0x1000), tensor(0x2000), 16)

    assert at_once(work) == [None, 8] * (THREADS // 2)
    assert slow.calls("cuLibraryLoadData") == 8
    assert slow.launch_count() == THREADS // 2


def test_threads_open_one_bundle_each_by_itself(tmp_path: Path, tensor: Any, slow: FakeCuda) -> None:
    path = make_bundle(tmp_path / "add.nojit", kernel("add", **VECTOR_ADD))

    def work(_: int) -> None:
        bundle = loader.load(path)
        bundle.kernel("add")[(1,)](tensor(0x1000), tensor(0x2000), 16)
        bundle.close()

    assert at_once(work) == [None] * THREADS
    assert slow.launch_count() == THREADS


@pytest.mark.parametrize("function", ["cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelSetAttribute"])
def test_one_threads_failed_load_is_its_own(make: Make, tensor: Any, slow: FakeCuda, function: str) -> None:
    add = make(launch={"shared_bytes": 60_000})
    slow.fail(function, 2, call=0)
    results = at_once(lambda _: add[(1,)](tensor(0x1000), tensor(0x2000), 16))
    failed = [error for error in results if error is not None]
    assert len(failed) == 1
    assert isinstance(failed[0], DriverError)
    assert slow.launch_count() == THREADS - 1
    assert len({launch.kernel for launch in slow.launches()}) == 1


def test_all_threads_come_through_a_reset(make: Make, tensor: Any, slow: FakeCuda) -> None:
    add = make()
    add[(1,)](tensor(0x1000), tensor(0x2000), 16)
    loads = slow.calls("cuLibraryLoadData")
    slow.lose_context(0)
    results = at_once(lambda _: add[(1,)](tensor(0x1000), tensor(0x2000), 16))
    assert results == [None] * THREADS
    assert slow.launch_count() == THREADS + 1
    assert slow.calls("cuLibraryLoadData") == loads


def test_threads_that_launch_on_two_devices_keep_their_contexts(make: Make, tensor: Any, slow: FakeCuda) -> None:
    add = make()

    def work(number: int) -> tuple[int, int | None]:
        slow.make_current(number & 1)
        for _ in range(10):
            device = number >> 1 & 1
            add[(1,)](tensor(0x1000, device=device), tensor(0x2000, device=device), 16)
        return slow.context()

    assert at_once(work) == [(1, 0), (1, 1)] * (THREADS // 2)
    assert slow.launch_count() == 10 * THREADS
