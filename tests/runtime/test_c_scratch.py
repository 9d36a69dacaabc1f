"""Scratch memory of launches from C: the driver's, and what `nj_options.allocate` gives; nothing is lost where a step fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakecuda import FakeCuda
from tests.support.bundles import kernel, make_bundle
from tests.support.capi import ALLOCATE, RELEASE, CApi, CBundle, CError, CKernel, Options

DRIVER, MEMORY, ARGUMENT = 3, 4, 5
OUT_OF_MEMORY = 2
BOTH = {
    "global_scratch_bytes": 640,
    "global_scratch_align": 1024,
    "profile_scratch_bytes": 48,
    "profile_scratch_align": 16,
}


class Borrowed:
    """Callbacks that hand out memory from a list of addresses; None stands for a refusal."""

    def __init__(self, *addresses: int | None) -> None:
        self.asked: list[tuple[int, int]] = []
        self.released: list[int] = []

        def allocate(_user: Any, size: int, align: int, _device: int, _stream: int, address: Any) -> int:
            given = addresses[len(self.asked)]
            self.asked.append((size, align))
            address[0] = 0xBAD if given is None else given
            return given is None

        self.options = Options.of(
            allocate=ALLOCATE(allocate),
            release=RELEASE(lambda _user, address, _device, _stream: self.released.append(address)),
        )


@pytest.fixture
def open_c(fakecuda: FakeCuda, tmp_path: Path) -> Iterator[Callable[..., CKernel]]:
    opened: list[CBundle] = []

    def build(options: Options | None = None, **launch: int) -> CKernel:
        path = make_bundle(tmp_path / f"{len(opened)}.nojit", kernel("k", {"x": "*fp16?"}, launch=launch or BOTH))
        opened.append(CApi().open(path, options))
        return opened[-1].kernel("k")

    yield build
    for bundle in opened:
        bundle.close()


def test_memory_of_the_driver_is_aligned_beyond_what_the_driver_aligns(
    open_c: Callable[..., CKernel], fakecuda: FakeCuda
) -> None:
    plan = open_c().prepare(None)
    before = fakecuda.allocations()
    plan.launch([None], (3, 2, 1))
    global_scratch, profile_scratch = fakecuda.last_launch().ints()
    assert (global_scratch % 1024, profile_scratch % 16) == (0, 0)
    assert 0 not in {global_scratch, profile_scratch}
    assert fakecuda.allocations() == before


@pytest.mark.parametrize("call", [0, 1])
def test_a_driver_without_memory_launches_nothing_and_frees_what_it_gave(
    open_c: Callable[..., CKernel], fakecuda: FakeCuda, call: int
) -> None:
    plan = open_c().prepare(None)
    before = fakecuda.allocations()
    fakecuda.fail("cuMemAllocAsync", OUT_OF_MEMORY, call=call)
    with pytest.raises(CError, match=r"cuMemAllocAsync failed, got CUDA_ERROR_OUT_OF_MEMORY - at .*kernel k") as caught:
        plan.launch([None], (1, 1, 1))
    assert (caught.value.code, caught.value.driver_code) == (DRIVER, OUT_OF_MEMORY)
    assert (fakecuda.launch_count(), fakecuda.calls("cuMemFreeAsync")) == (0, call)
    assert fakecuda.allocations() == before
    plan.launch([None], (1, 1, 1))
    assert fakecuda.launch_count() == 1


def test_a_launch_that_fails_frees_its_memory(open_c: Callable[..., CKernel], fakecuda: FakeCuda) -> None:
    plan = open_c().prepare(None)
    before = fakecuda.allocations()
    fakecuda.fail("cuLaunchKernel", 1, call=0)
    with pytest.raises(CError, match="cuLaunchKernel failed"):
        plan.launch([None], (1, 1, 1))
    assert (fakecuda.calls("cuMemFreeAsync"), fakecuda.allocations()) == (2, before)


def test_a_launch_whose_memory_cannot_be_freed_says_so(open_c: Callable[..., CKernel], fakecuda: FakeCuda) -> None:
    plan = open_c().prepare(None)
    fakecuda.fail("cuMemFreeAsync", 1, call=0)
    with pytest.raises(CError, match="cuMemFreeAsync failed"):
        plan.launch([None], (1, 1, 1))
    # the other part is freed all the same
    assert (fakecuda.launch_count(), fakecuda.calls("cuMemFreeAsync")) == (1, 2)


def test_more_memory_than_addresses_count_is_refused_before_the_driver_is_asked(
    open_c: Callable[..., CKernel], fakecuda: FakeCuda
) -> None:
    plan = open_c().prepare(None)
    with pytest.raises(CError, match=r"fewer than 2\^63 bytes, got 640 bytes for each block - at .*kernel k") as caught:
        plan.launch([None], (2**31 - 1, 65535, 65535))
    assert (caught.value.code, caught.value.driver_code) == (MEMORY, 0)
    assert (fakecuda.calls("cuMemAllocAsync"), fakecuda.launch_count()) == (0, 0)


def test_memory_of_the_caller_goes_back_though_the_launch_fails(
    open_c: Callable[..., CKernel], fakecuda: FakeCuda
) -> None:
    borrowed = Borrowed(0x10000, 0x20000)
    plan = open_c(borrowed.options).prepare(None)
    fakecuda.fail("cuLaunchKernel", 1, call=0)
    with pytest.raises(CError, match="cuLaunchKernel failed"):
        plan.launch([None], (2, 1, 1))
    assert borrowed.asked == [(1280, 1024), (96, 16)]
    assert borrowed.released == [0x10000, 0x20000]


def test_a_caller_that_refuses_memory_launches_nothing(open_c: Callable[..., CKernel], fakecuda: FakeCuda) -> None:
    borrowed = Borrowed(0x10000, None)
    plan = open_c(borrowed.options).prepare(None)
    with pytest.raises(CError, match="allocate to give 48 bytes of scratch memory") as caught:
        plan.launch([None], (1, 1, 1))
    assert (caught.value.code, caught.value.driver_code) == (MEMORY, 0)
    # what the refusal left in `*address` is not the library's to release
    assert borrowed.released == [0x10000]
    assert fakecuda.launch_count() == 0


@pytest.mark.parametrize(("address", "released"), [(0x10008, [0x10008]), (0, [])])
def test_memory_of_the_caller_that_is_not_aligned_is_refused_and_goes_back(
    open_c: Callable[..., CKernel], fakecuda: FakeCuda, address: int, released: list[int]
) -> None:
    borrowed = Borrowed(address)
    plan = open_c(borrowed.options).prepare(None)
    with pytest.raises(CError, match="allocate to give memory aligned to 1024 bytes") as caught:
        plan.launch([None], (1, 1, 1))
    assert caught.value.code == ARGUMENT
    assert (borrowed.released, fakecuda.launch_count()) == (released, 0)


def test_one_callback_of_the_two_is_refused(fakecuda: FakeCuda, tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "k.nojit", kernel("k", {"x": "*fp16?"}))
    borrowed = Borrowed().options
    for alone in (Options.of(allocate=borrowed.allocate), Options.of(release=borrowed.release)):
        with pytest.raises(CError, match="allocate and release both, or neither") as caught:
            CApi().open(path, alone)
        assert caught.value.code == ARGUMENT


FORK = """
import os, sys
from pathlib import Path
from tests.support.capi import CApi, CError

plan = CApi().open(Path(sys.argv[1])).kernel("k").prepare(None)
if os.fork() == 0:
    try:
        plan.launch([None], (1, 1, 1))
    except CError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
plan.launch([None], (1, 1, 1))
"""


def test_a_plan_is_refused_in_a_forked_child(fakecuda: FakeCuda, tmp_path: Path) -> None:
    path = make_bundle(tmp_path / "k.nojit", kernel("k", {"x": "*fp16?"}))
    ran = subprocess.run(
        [sys.executable, "-c", FORK, str(path)],
        env=fakecuda.environment(90),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("3: CUDA was initialised before fork")
