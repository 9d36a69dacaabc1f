"""Shared memory, clusters, launch attributes, scratch; and what launching leaves behind: nothing."""

from __future__ import annotations

import gc
import struct
import sys
import weakref
from types import ModuleType
from typing import Any

import pytest
from nojit.runtime.errors import (
    ArgumentError,
    DriverError,
    NoMatchingVariantError,
)
from nojit.runtime.kernel import Kernel

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make
from tests.support.bundles import target
from tests.support.tensors import PointerTensor

# launch facts


def test_shared_memory_is_raised_once_per_device(make: Make, fakecuda: FakeCuda) -> None:
    small, large = (
        make({"n": "i32"}, launch={"shared_bytes": 49152}),
        make({"n": "i32"}, launch={"shared_bytes": 232448}),
    )
    for n in range(5):
        small[(1,)](n)
        assert (fakecuda.last_launch().shared_bytes, fakecuda.last_launch().carveout) == (49152, -1)
    assert fakecuda.calls("cuKernelSetAttribute") == 0
    for n in range(5):
        large[(1,)](n)
        assert (fakecuda.last_launch().shared_bytes, fakecuda.last_launch().carveout) == (232448, 100)
    assert fakecuda.calls("cuKernelSetAttribute") == 2, "the limit, and the share of the L1 cache"


@pytest.mark.parametrize(
    ("arch", "static", "dynamic", "raised"),
    [
        # from sm_90 up 1,024 bytes of the section are the system's
        ("sm_90a", 1024, 49152, False),
        ("sm_90a", 1025, 49152, True),
        ("sm_90a", 2048, 48128, False),
        ("sm_90a", 1024, 232448, True),
        ("sm_80", 1024, 48128, False),
        ("sm_80", 1024, 48129, True),
        ("sm_80", 1024, 165888, True),
    ],
)
def test_static_shared_memory_counts_beside_the_dynamic(
    make: Make, fakecuda: FakeCuda, arch: str, static: int, dynamic: int, *, raised: bool
) -> None:
    fakecuda.set_devices(80 if arch == "sm_80" else 90)
    add = make(
        {"n": "i32"},
        launch={"shared_bytes": dynamic},
        static_shared_bytes=static,
        on=target(arch),
        file={"on": target(arch)},
    )
    add[(1,)](1)
    assert fakecuda.last_launch().shared_bytes == dynamic
    assert (fakecuda.calls("cuKernelSetAttribute") > 0) == raised


def test_static_and_dynamic_shared_memory_are_at_most_what_the_device_has(make: Make, fakecuda: FakeCuda) -> None:
    with pytest.raises(DriverError, match="cuKernelSetAttribute failed"):
        make({"n": "i32"}, launch={"shared_bytes": 232448}, static_shared_bytes=1025)[(1,)](1)
    assert fakecuda.launch_count() == 0


def test_too_much_shared_memory_is_the_drivers_word(make: Make, fakecuda: FakeCuda) -> None:
    with pytest.raises(DriverError, match="cuKernelSetAttribute failed"):
        make({"n": "i32"}, launch={"shared_bytes": 232449})[(1,)](1)
    assert fakecuda.launch_count() == 0


@pytest.mark.parametrize("ctas", [2, 8, 16])
def test_clusters_multiply_the_grid(make: Make, fakecuda: FakeCuda, ctas: int) -> None:
    add = make({"n": "i32"}, configs=[{"num_warps": 4, "num_ctas": ctas}])
    add[(3, 5)](1)
    launch = fakecuda.last_launch()
    assert (launch.grid, launch.cluster) == ((3 * ctas, 5, 1), (ctas, 1, 1))
    assert launch.attributes[5][:4] == struct.pack("<I", 1), "spread over the SMs"
    with pytest.raises(ArgumentError, match=f"expected 0 to {(2**31 - 1) // ctas}, got"):
        add[((2**31 - 1) // ctas + 1,)](1)


def test_cooperative_and_dependent_launches_say_so(make: Make, fakecuda: FakeCuda) -> None:
    make({"n": "i32"}, launch={"cooperative": True})[(3,)](1)
    assert fakecuda.last_launch().cooperative
    assert not fakecuda.last_launch().pdl
    make({"n": "i32"}, launch={"pdl": True})[(3,)](1)
    assert fakecuda.last_launch().pdl
    assert fakecuda.last_launch().grid == (3, 1, 1)


# scratch memory


def test_scratch_comes_from_the_framework_and_goes_back(
    make: Make, tensor: Any, faketorch: ModuleType, fakecuda: FakeCuda
) -> None:
    add = make(
        {"x": "*fp16"},
        configs=[{"num_warps": 4, "num_ctas": 2}],
        launch={
            "global_scratch_bytes": 100,
            "global_scratch_align": 1024,
            "profile_scratch_bytes": 7,
            "profile_scratch_align": 1,
        },
    )
    for _ in range(3):
        add[(2, 3)](tensor(0x1000, device=1))
    _, global_scratch, profile_scratch = fakecuda.last_launch().ints()
    counts = faketorch.counts()
    assert (counts["allocated"], counts["freed"]) == (6, 6)
    (start, size, device), (profile_start, profile_size, _) = faketorch.allocations()[-2:]
    assert device == 1
    assert global_scratch % 1024 == 0
    assert start <= global_scratch <= start + size - 2 * 3 * 2 * 100
    assert profile_start <= profile_scratch <= profile_start + profile_size - 2 * 3 * 2 * 7


def test_no_scratch_is_asked_for_without_need(
    make: Make, tensor: Any, faketorch: ModuleType, fakecuda: FakeCuda
) -> None:
    make({"x": "*fp16"})[(2,)](tensor(0x1000))
    make({"x": "*fp16"}, launch={"global_scratch_bytes": 8})[(0,)](tensor(0x1000))
    assert faketorch.counts()["allocated"] == 0
    assert fakecuda.last_launch().ints()[1:] == (0, 0)


def test_scratch_needs_a_framework_and_its_current_stream(
    make: Make, tensor: Any, faketorch: ModuleType, fakecuda: FakeCuda
) -> None:
    add = make({"x": "*fp16"}, launch={"global_scratch_bytes": 8})
    with pytest.raises(ArgumentError, match="needs scratch memory: expected tensors of a framework with the DLPack C"):
        add[(1,)](PointerTensor(0x1000), stream=0)
    stream = fakecuda.stream()
    with pytest.raises(ArgumentError, match="the framework's current stream: expected that one, or an allocator"):
        add[(1,)](tensor(0x1000), stream=stream)
    faketorch.set_stream(0, stream)
    add[(1,)](tensor(0x1000), stream=stream)
    assert fakecuda.last_launch().stream == stream


def test_scratch_that_cannot_be_had_is_a_typed_error(
    make: Make, tensor: Any, faketorch: ModuleType, fakecuda: FakeCuda
) -> None:
    add = make({"x": "*fp16"}, launch={"global_scratch_bytes": 1 << 30, "profile_scratch_bytes": 8})
    with pytest.raises(DriverError, match=r"cannot allocate scratch memory \(not a size") as caught:
        add[(2**31 - 1, 65535)](tensor(0x1000))
    assert caught.value.code == 2
    faketorch.fail("allocate")
    with pytest.raises(DriverError, match="MemoryError: faketorch is out of memory"):
        add[(1,)](tensor(0x1000))
    faketorch.fail("allocate", False)
    fakecuda.fail("cuLaunchKernel", 1, call=0)
    with pytest.raises(DriverError, match="cuLaunchKernel failed"):
        add[(1,)](tensor(0x1000))
    counts = faketorch.counts()
    assert counts["allocated"] == counts["freed"] > 0


# what a launch costs in memory


def test_nothing_leaks_over_many_launches_and_errors(make: Make, tensor: Any, faketorch: ModuleType) -> None:
    add = make()
    x, y, text = tensor(0x1000), tensor(0x2000), str(12345)

    def calls(count: int) -> None:
        for n in range(count):
            add[(1,)](x, y, n % 32, BLOCK=256)
            add(x, y, n=17)
            if n % 50 == 0:
                for wrong in (lambda: add[(1,)](x, y, text), lambda: add[(1,)](x, y, 1, other=2), lambda: add[(-1,)](x, y, 1),
                              lambda: add[(1,)](x, 2.0, 1), lambda: add[(1,)](x), lambda: add[text](x, y, 1)):  # fmt: skip
                    with pytest.raises((ArgumentError, NoMatchingVariantError)):
                        wrong()

    calls(500)
    gc.collect()
    objects = (x, y, text, add, None, (1,), faketorch.Tensor)
    before = [sys.getrefcount(one) for one in objects]
    blocks = sys.getallocatedblocks()
    calls(50_000)
    gc.collect()
    after = [sys.getrefcount(one) for one in objects]
    assert [abs(new - old) < 500 for new, old in zip(after, before, strict=True)] == [True] * len(objects), (
        before,
        after,
    )
    # a Python without the GIL counts what it has yet to give back too: the number wavers by hundreds, a leak is thousands
    assert sys.getallocatedblocks() - blocks < 4000


def test_kernels_and_their_plans_can_be_collected(make: Make, tensor: Any) -> None:
    def launch_in_a_cycle() -> weakref.ref[Kernel]:
        fresh = Kernel("add", make()._bundles.bundles)
        cycle: list[Any] = []
        cycle.append(fresh[lambda _: (len(cycle),)])
        cycle[0](tensor(0x1000), tensor(0x2000), 5)
        return weakref.ref(fresh)

    gone = launch_in_a_cycle()
    gc.collect()
    assert gone() is None
