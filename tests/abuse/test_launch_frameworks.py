"""Frameworks that do not keep their word: views and allocations that are not there, too short, or elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof
from types import ModuleType
from typing import Any

import pytest
from nojit import runtime
from nojit.runtime.errors import ArgumentError

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make
from tests.support.frameworks import HOST, MANAGED, Framework, describe

SCRATCH: dict[str, Any] = {"global_scratch_bytes": 1000, "global_scratch_align": 256}


# views of tensors


VIEWS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda view: None,
    "no data and no shape": lambda view: describe(view, 0, None),
    "no data": lambda view: describe(view, 0, (4, 4)),
    "no dtype": lambda view: describe(view, 0x1000, bits=0),
    "a dtype of no width": lambda view: describe(view, 0x1000, bits=255),
    "many lanes": lambda view: describe(view, 0x1000, lanes=65535),
    "a negative device": lambda view: describe(view, 0x1000, device=-7),
    "a device that is not there": lambda view: describe(view, 0x1000, device=2**31 - 1),
    "another kind of device": lambda view: describe(view, 0x1000, kind=10),
    "host memory": lambda view: describe(view, 0x1000, kind=HOST),
}


@pytest.mark.parametrize("lie", VIEWS)
@pytest.mark.parametrize("managed", [False, True], ids=["a view", "a managed tensor"])
def test_a_view_that_is_none_is_refused(make: Make, fakecuda: FakeCuda, lie: str, *, managed: bool) -> None:
    def export_managed(given: Any) -> int:
        VIEWS[lie](given.tensor)
        return 0

    def export(view: Any) -> int:
        VIEWS[lie](view)
        return 0

    framework = Framework(None, export_managed) if managed else Framework(export)
    add = make({"x": "*u8"})
    for _ in range(2):
        with pytest.raises((ArgumentError, runtime.DriverError)):
            add[(1,)](framework.Tensor())
    assert fakecuda.launch_count() == 0
    assert framework.deleted == 2 * managed


@pytest.mark.parametrize("managed", [False, True], ids=["a view", "a managed tensor"])
def test_a_framework_that_fails_without_a_word_is_named(make: Make, fakecuda: FakeCuda, *, managed: bool) -> None:
    framework = Framework(None, lambda _: -1) if managed else Framework(lambda _: -1)
    with pytest.raises(ArgumentError, match="argument x of kernel add"):
        make({"x": "*u8"})[(1,)](framework.Tensor())
    assert fakecuda.launch_count() == 0


def test_a_framework_that_hands_out_nothing_is_named(make: Make, fakecuda: FakeCuda) -> None:
    with pytest.raises(ArgumentError, match="gave no tensor"):
        make({"x": "*u8"})[(1,)](Framework(None, lambda _: 1).Tensor())
    assert fakecuda.launch_count() == 0


@pytest.mark.parametrize("missing", ["export_managed", "stream"])
def test_a_table_without_its_functions_is_refused(make: Make, fakecuda: FakeCuda, missing: str) -> None:
    framework = Framework(**{missing: None})
    with pytest.raises(ArgumentError, match="lacks functions"):
        make({"x": "*u8"})[(1,)](framework.Tensor())
    assert fakecuda.launch_count() == 0


def test_a_table_of_another_version_that_names_itself_as_its_elder_is_left_alone(make: Make) -> None:
    framework = Framework(version=2)
    framework.api.previous = addressof(framework.api)
    with pytest.raises((ArgumentError, runtime.NoMatchingVariantError)):
        make({"x": "*u8"})[(1,)](framework.Tensor())


@pytest.mark.parametrize("code", [-1, 1])
def test_a_stream_that_the_framework_does_not_say_is_an_error(make: Make, fakecuda: FakeCuda, code: int) -> None:
    with pytest.raises(ArgumentError, match="which stream is current"):
        make({"x": "*u8"})[(1,)](Framework(stream=lambda: code).Tensor())
    assert fakecuda.launch_count() == 0


# scratch memory


ALLOCATIONS: dict[str, Callable[[Any], Any]] = {
    "address 0": lambda view: describe(view, 0),
    "host memory": lambda view: describe(view, 0x10000, kind=HOST),
    "pinned host memory": lambda view: describe(view, 0x10000, kind=3),
    "another device": lambda view: describe(view, 0x10000, device=1),
    "no device at all": lambda view: describe(view, 0x10000, device=-1),
    "a byte too short": lambda view: describe(view, 0x10000, (999,)),
    "too short once aligned": lambda view: describe(view, 0x10001, (1254,)),
    "no elements": lambda view: describe(view, 0x10000, (0,)),
    "no shape": lambda view: describe(view, 0x10000, None),
    "a negative size": lambda view: describe(view, 0x10000, (-4096,)),
    "more than memory": lambda view: describe(view, 0x10000, (2**62, 2**62)),
    "a dtype of no width": lambda view: describe(view, 0x10000, bits=0),
    "nothing": lambda view: None,
}


@pytest.mark.parametrize("lie", ALLOCATIONS)
def test_scratch_that_the_kernel_cannot_use_is_never_launched(make: Make, fakecuda: FakeCuda, lie: str) -> None:
    def allocate(managed: Any) -> int:
        ALLOCATIONS[lie](managed.tensor)
        return 0

    framework = Framework(allocate=allocate)
    with pytest.raises(ArgumentError, match="expected the framework's allocator to return"):
        make({"x": "*u8"}, launch=SCRATCH)[(1,)](framework.Tensor())
    assert fakecuda.launch_count() == 0
    assert framework.deleted == 1, "it goes back all the same"


def test_an_allocator_that_hands_out_nothing_is_named(make: Make, fakecuda: FakeCuda) -> None:
    with pytest.raises(ArgumentError, match="expected the framework's allocator to return"):
        make({"x": "*u8"}, launch=SCRATCH)[(1,)](Framework(allocate=lambda _: 1).Tensor())
    assert fakecuda.launch_count() == 0


def test_a_framework_without_an_allocator_is_named(make: Make, fakecuda: FakeCuda) -> None:
    with pytest.raises(ArgumentError, match="expected the framework to have an allocator"):
        make({"x": "*u8"}, launch=SCRATCH)[(1,)](Framework(allocate=None).Tensor())
    assert fakecuda.launch_count() == 0


@pytest.mark.parametrize(
    ("facts", "address"),
    [
        ({"address": 0x10000, "shape": (1000,)}, 0x10000),
        ({"address": 0x10001, "shape": (1255,)}, 0x10100),
        ({"address": 0x10000, "shape": (1000,), "byte_offset": 0x100}, 0x10100),
        ({"address": 0x10000, "shape": (250,), "bits": 32}, 0x10000),
        ({"address": 0x10000, "shape": (1000,), "kind": MANAGED}, 0x10000),
    ],
)
def test_scratch_that_is_enough_is_launched(make: Make, fakecuda: FakeCuda, facts: Any, address: int) -> None:
    framework = Framework(allocate=lambda managed: describe(managed.tensor, **facts) or 0)
    make({"x": "*u8"}, launch=SCRATCH)[(1,)](framework.Tensor())
    assert fakecuda.last_launch().ints()[1] == address
    assert framework.deleted == 1


@pytest.mark.parametrize("shape", [(999,), (0,), (1, 2, 3)])
def test_a_tensor_of_ones_own_allocator_is_long_enough(
    make: Make, faketorch: ModuleType, fakecuda: FakeCuda, shape: tuple[int, ...]
) -> None:
    add = make({"x": "*u8"}, launch=SCRATCH)
    short = faketorch.Tensor(0x10000, "uint8", shape)
    runtime.set_allocator(lambda *_: short)
    try:
        with pytest.raises(ArgumentError, match="expected the scratch allocator to return at least 1000 bytes, got"):
            add[(1,)](faketorch.Tensor(0x1000, "uint8"))
        runtime.set_allocator(lambda *_: faketorch.Tensor(0x10000, "uint8", (10, 100)))
        add[(1,)](faketorch.Tensor(0x1000, "uint8"))
    finally:
        runtime.set_allocator(None)
    assert fakecuda.launch_count() == 1
