"""Contexts that are lost, devices that differ, and captures in which nothing but launches may happen."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from nojit.runtime.errors import ArgumentError, DriverError, NoMatchingVariantError
from nojit.runtime.kernel import Kernel

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make
from tests.support.tensors import InterfaceTensor, PointerTensor

# what a launch may call once everything is loaded: none of it waits, allocates, frees or loads
LAUNCHING = {
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuTensorMapEncodeTiled",
}
# facts of a kernel, which no capture records: the first launch of a variant may still set them
RAISING = {"cuKernelSetAttribute"}


def calls_since(driver: FakeCuda, start: int) -> set[str]:
    return {name for name, _ in driver.log()[start:]}


# a context that somebody reset


@pytest.mark.parametrize("code", [709, 201])
@pytest.mark.parametrize("pushed", [True, False], ids=["pushed by us", "current already"])
def test_a_lost_context_is_renewed_once(make: Make, tensor: Any, fakecuda: FakeCuda, code: int, pushed: bool) -> None:
    add = make(launch={"shared_bytes": 60_000, "pdl": True})
    if not pushed:
        fakecuda.make_current(0)
    add[(1,)](tensor(0x1000), tensor(0x2000), 5)
    depth = fakecuda.context()[0]
    for _ in range(2):
        loads, retained = fakecuda.calls("cuLibraryLoadData"), fakecuda.calls("cuDevicePrimaryCtxRetain")
        fakecuda.lose_context(0, code)
        for n in (6, 7):
            add[(1,)](tensor(0x1000), tensor(0x2000), n)
            assert fakecuda.last_launch().ints()[2] == n
        assert fakecuda.calls("cuLibraryLoadData") == loads, "images survive"
        assert fakecuda.calls("cuDevicePrimaryCtxRetain") == retained + 1
        assert fakecuda.context()[0] == depth


def test_a_lost_context_costs_scratch_nothing(
    make: Make, tensor: Any, faketorch: ModuleType, fakecuda: FakeCuda
) -> None:
    add = make({"x": "*fp16"}, launch={"global_scratch_bytes": 64})
    add[(1,)](tensor(0x1000))
    fakecuda.lose_context(0)
    add[(1,)](tensor(0x1000))
    assert fakecuda.launch_count() == 2
    assert faketorch.counts()["allocated"] == faketorch.counts()["freed"] == 2


def test_the_other_device_keeps_its_context(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make(launch={"shared_bytes": 60_000})
    for device in (0, 1):
        add[(1,)](tensor(0x1000, device=device), tensor(0x2000, device=device), 5)
    fakecuda.lose_context(1)
    raised = fakecuda.calls("cuKernelSetAttribute")
    for device in (0, 1):
        add[(1,)](tensor(0x1000, device=device), tensor(0x2000, device=device), 5)
    assert fakecuda.calls("cuKernelSetAttribute") == raised + raised // 2, "one of the two is told again"


def test_a_context_that_cannot_be_had_again_is_an_error_until_it_can(
    make: Make, tensor: Any, fakecuda: FakeCuda
) -> None:
    add = make()
    add[(1,)](tensor(0x1000), tensor(0x2000), 5)
    fakecuda.lose_context(0)
    fakecuda.fail("cuDevicePrimaryCtxRetain", 2, call=0)
    with pytest.raises(DriverError, match=r"cuDevicePrimaryCtxRetain failed, got CUDA_ERROR_OUT_OF_MEMORY"):
        add[(1,)](tensor(0x1000), tensor(0x2000), 5)
    add[(1,)](tensor(0x1000), tensor(0x2000), 6)
    assert fakecuda.last_launch().ints()[2] == 6
    assert fakecuda.context() == (0, None)


def test_every_variant_raises_its_limits_again_in_a_new_context(make: Make, fakecuda: FakeCuda) -> None:
    first, second = (make({"n": "i32"}, name=name, launch={"shared_bytes": 60_000}) for name in ("first", "second"))
    first[(1,)](1)
    second[(1,)](2)
    fakecuda.lose_context(0)
    first[(1,)](3)
    try:
        second[(1,)](4)
    finally:
        fakecuda.violations()
    assert fakecuda.last_launch().ints()[0] == 4


@pytest.mark.parametrize(
    ("configs", "launch"),
    [([{"num_warps": 4}], {"shared_bytes": 60_000}), ([{"num_warps": 4, "num_ctas": 16}], {})],
    ids=["shared memory", "wide cluster"],
)
@pytest.mark.parametrize("pushed", [True, False], ids=["pushed by us", "current already"])
def test_limits_are_raised_again_where_somebody_else_renewed_the_context(
    make: Make, fakecuda: FakeCuda, configs: list[dict[str, int]], launch: dict[str, int], pushed: bool
) -> None:
    add = make({"n": "i32"}, configs=configs, launch=launch)
    if not pushed:
        fakecuda.make_current(0)
    add[(1,)](1)
    raised = fakecuda.calls("cuKernelSetAttribute")
    for n in (2, 3):
        fakecuda.lose_context(0)
        assert fakecuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(ctypes.c_void_p()), 0) == 0
        for _ in range(2):
            add[(1,)](n)
        assert fakecuda.last_launch().ints()[0] == n
        # the launch that went beyond the limits
        assert len(fakecuda.violations()) == 1
        assert fakecuda.calls("cuKernelSetAttribute") == n * raised
    assert fakecuda.launch_count() == 5


def test_what_is_refused_with_its_limits_raised_stays_refused(make: Make, fakecuda: FakeCuda) -> None:
    plain, shared = make({"n": "i32"}), make({"n": "i32"}, name="shared", launch={"shared_bytes": 60_000})
    for kernel, tries in ((plain, 1), (shared, 2)):
        kernel[(1,)](1)
        before = fakecuda.calls("cuLaunchKernel")
        for call in range(tries):
            fakecuda.fail("cuLaunchKernel", 1, call=call)
        with pytest.raises(DriverError, match="cuLaunchKernel failed, got CUDA_ERROR_INVALID_VALUE"):
            kernel[(1,)](1)
        assert fakecuda.calls("cuLaunchKernel") == before + tries
    fakecuda.fail("cuLaunchKernel", 1, call=0)
    fakecuda.fail("cuKernelSetAttribute", 2, call=0)
    with pytest.raises(DriverError, match="cuKernelSetAttribute failed, got CUDA_ERROR_OUT_OF_MEMORY"):
        shared[(1,)](1)


FIRST_USES: dict[str, Callable[[Kernel, Any], object]] = {
    "launch": lambda other, tensor: other[(1,)](tensor(0x1000), tensor(0x2000), 5),
    "preload": lambda other, _: other.preload(),
    "warmup": lambda other, tensor: other.warmup(tensor(0x1000), tensor(0x2000), 5),
}


@pytest.mark.parametrize("pushed", [True, False], ids=["pushed by us", "current already"])
@pytest.mark.parametrize("use", FIRST_USES)
def test_what_is_used_first_after_a_reset_is_loaded(
    make: Make, tensor: Any, fakecuda: FakeCuda, use: str, pushed: bool
) -> None:
    add, other = make(), make(name="other")
    if not pushed:
        fakecuda.make_current(0)
    add[(1,)](tensor(0x1000), tensor(0x2000), 5)
    depth, retained = fakecuda.context()[0], fakecuda.calls("cuDevicePrimaryCtxRetain")
    fakecuda.lose_context(0)
    FIRST_USES[use](other, tensor)
    other[(1,)](tensor(0x1000), tensor(0x2000), 6)
    assert fakecuda.last_launch().ints()[2] == 6
    assert fakecuda.calls("cuDevicePrimaryCtxRetain") == retained + 1
    assert fakecuda.context()[0] == depth


def test_a_call_without_tensors_runs_where_the_lost_context_was(make: Make, fakecuda: FakeCuda) -> None:
    add = make({"n": "i32"})
    fakecuda.make_current(1)
    add[(1,)](1)
    fakecuda.lose_context(1)
    add[(1,)](2)
    assert (fakecuda.last_launch().device, fakecuda.last_launch().ints()[0]) == (1, 2)


# several devices


def test_attributes_are_set_on_each_device_by_itself(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make({"x": "*fp16"}, configs=[{"num_warps": 4, "num_ctas": 16}], launch={"shared_bytes": 200_000})
    for device in (0, 1, 0, 1):
        add[(1,)](tensor(0x1000, device=device))
        assert fakecuda.last_launch().device == device
    # the limit of shared memory, its share of the cache, and the larger cluster
    assert fakecuda.calls("cuKernelSetAttribute") == 6


def test_mixed_devices_are_refused_whatever_tensors_are_made_of(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    fakecuda.add_memory(0x4000_0000, 64, device=1)
    add = make({"x": "*fp16", "y": "*fp16"})
    others = [
        tensor(0x1000, device=1),
        PointerTensor(0x1000, device="cuda:1"),
        PointerTensor(0x4000_0000, device="cuda"),
        InterfaceTensor(0x4000_0000),
    ]
    for other in others:
        with pytest.raises(ArgumentError, match="expected cuda:0, where x lies, got cuda:1 - at argument y") as caught:
            add[(1,)](tensor(0x1000), other)
        assert caught.value.argument == "y"
        add[(1,)](other, other, stream=0)
        assert fakecuda.last_launch().device == 1
    assert fakecuda.launch_count() == len(others)


def test_a_device_that_there_is_not_is_a_typed_error(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make({"x": "*fp16"})
    for device in (2, 63, 64, 2**31 - 1):
        with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_DEVICE"):
            add[(1,)](tensor(0x1000, device=device))
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_DEVICE"):
        add.preload(7)
    assert fakecuda.launch_count() == 0


def test_devices_of_two_archs_get_each_what_runs_there(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make({"x": "*fp16"})
    add[(1,)](tensor(0x1000))
    fakecuda.set_devices(90, 80)
    with pytest.raises(NoMatchingVariantError, match="bundle has sm_90a; device is sm_80"):
        add[(1,)](tensor(0x1000, device=1))
    add[(1,)](tensor(0x1000))
    assert fakecuda.launch_count() == 2


# captures


def calls_of(add: Kernel, tensor: Any) -> None:
    for address, n in ((0x1000, 16), (0x1008, 16), (0x1000, 17)):
        for dtype in ("float16", "float32"):
            add[(1,)](tensor(address, dtype), tensor(0x2000, dtype), n)


@pytest.mark.parametrize(
    "facts",
    [{}, {"global_scratch_bytes": 64, "profile_scratch_bytes": 8}, {"cooperative": True}, {"shared_bytes": 60_000}],
    ids=["plain", "scratch", "attributes", "shared memory"],
)
def test_after_preload_a_capture_sees_nothing_but_launches(
    make: Make, tensor: Any, faketorch: ModuleType, fakecuda: FakeCuda, facts: dict[str, Any]
) -> None:
    add = make(launch=facts)
    add.preload()
    stream = fakecuda.stream()
    faketorch.set_stream(0, stream)
    with fakecuda.capture(stream):
        start = len(fakecuda.log())
        calls_of(add, tensor)
        assert calls_since(fakecuda, start) <= LAUNCHING | RAISING | {"cuDeviceGetAttribute", "cuDeviceGet"}
        start = len(fakecuda.log())
        calls_of(add, tensor)
        assert calls_since(fakecuda, start) <= LAUNCHING
        assert fakecuda.capture_status(stream) == 1
    assert {launch.stream for launch in fakecuda.launches()} == {stream}


def test_a_first_launch_may_be_captured(make: Make, tensor: Any, faketorch: ModuleType, fakecuda: FakeCuda) -> None:
    stream = fakecuda.stream()
    faketorch.set_stream(0, stream)
    add = make()
    with fakecuda.capture(stream):
        calls_of(add, tensor)
        assert fakecuda.capture_status(stream) == 1
    old = make(name="old")
    fakecuda.set_devices(90, driver_version=12020)
    with fakecuda.capture(stream), pytest.raises(DriverError, match="CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"):
        old[(1,)](tensor(0x1000), tensor(0x2000), 5)
    assert fakecuda.violations() == ["cuLibraryLoadData while a stream is captured"]
    old[(1,)](tensor(0x1000), tensor(0x2000), 5)


def test_a_capture_survives_what_is_dropped_and_refused_in_it(
    make: Make, tensor: Any, faketorch: ModuleType, fakecuda: FakeCuda
) -> None:
    stream = fakecuda.stream()
    faketorch.set_stream(0, stream)
    add, unused = make(), make(name="unused")
    add.preload()
    unused.preload()
    with fakecuda.capture(stream):
        with pytest.raises(NoMatchingVariantError):
            add[(1,)](tensor(0x1000, "int8"), tensor(0x2000, "int8"), 16)
        with pytest.raises(ArgumentError):
            add[(1,)](tensor(0x1000), tensor(0x2000))
        add.explain(tensor(0x1000), tensor(0x2000), 16)
        calls_of(add, tensor)
        del unused
        gc.collect()
        assert fakecuda.capture_status(stream) == 1
    assert fakecuda.calls("cuLibraryUnload") == 0


@pytest.mark.parametrize("code", [900, 901, 906])
def test_a_capture_that_breaks_is_a_typed_error_and_the_next_one_works(
    make: Make, tensor: Any, faketorch: ModuleType, fakecuda: FakeCuda, code: int
) -> None:
    stream = fakecuda.stream()
    faketorch.set_stream(0, stream)
    add = make()
    add.preload()
    fakecuda.fail("cuLaunchKernel", code, call=0)
    with fakecuda.capture(stream), pytest.raises(DriverError, match="CUDA_ERROR_STREAM_CAPTURE") as caught:
        add[(1,)](tensor(0x1000), tensor(0x2000), 16)
    assert caught.value.code == code
    with fakecuda.capture(stream):
        add[(1,)](tensor(0x1000), tensor(0x2000), 16)
    assert fakecuda.launch_count() == 1
