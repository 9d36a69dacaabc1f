"""A specialization that just misses a set of hints runs a slower variant: counted, named, logged, and never at a known launch."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from nojit import runtime
from nojit.runtime.kernel import Kernel
from nojit.runtime.observe import events
from nojit.runtime.observe.events import Event, HintMiss

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make

PARAMS = {"x": "*fp16", "y": "*fp16", "n": "i32", "stride": "i32"}
HINTS = [{"x": 16, "y": 16}, {"x": 16, "y": 16, "n": 16, "stride": 1}]
ALL = tuple(HINTS[1].items())


@pytest.fixture
def heard() -> Iterator[list[Event]]:
    said: list[Event] = []

    def listen(event: Event) -> None:
        if event.kind == "hint":
            said.append(event)

    events.add(listen)
    yield said
    events.remove(listen)


# what a process counts it counts for its life
NAMES = map("kernel_{}".format, itertools.count())


def misses(kernel: Kernel) -> dict[tuple[tuple[str, int], ...], HintMiss]:
    """Those of a kernel, by the hints that fail."""
    found = [miss for miss in runtime.counters().hint_misses if miss.kernel == kernel.name]
    return {tuple((param, hint) for param, hint, _ in miss.failed): miss for miss in found}


def test_a_call_that_misses_one_hint_is_counted_and_named(
    make: Make, tensor: Any, fakecuda: FakeCuda, heard: list[Event]
) -> None:
    add = make(PARAMS, name="near", hints=HINTS)
    before = runtime.counters().hint_missed
    add[(1,)](tensor(0x1000), tensor(0x2000), 1000, 1)
    assert runtime.counters().hint_missed == before + 1
    (miss,) = misses(add).values()
    assert (miss.kernel, miss.hints, miss.failed, miss.kinds) == ("near", ALL, (("n", 16, "int 1000"),), 1)
    assert str(miss) == "kernel near misses n:16 (got int 1000) of the hints x:16 y:16 n:16 stride:1"
    assert miss.variant == add._bundles.bundles[0].table("near").variant_id(1), "what runs"
    (event,) = heard
    assert (event.kind, event.kernel, event.variant, event.device, event.detail) == (
        "hint", "near", miss.variant, 0, str(miss)
    )  # fmt: skip


def test_a_known_kind_of_call_is_not_looked_at_again(
    make: Make, tensor: Any, fakecuda: FakeCuda, heard: list[Event]
) -> None:
    add = make(PARAMS, name=next(NAMES), hints=HINTS)
    for n in range(1, 160):
        add[(1,)](tensor(0x1000), tensor(0x2000 + 16 * n), n * 16 + 3, 1)
    assert len(heard) == 1
    assert [miss.kinds for miss in misses(add).values()] == [1]


KINDS: dict[str, tuple[tuple[int, int, int, int], tuple[tuple[str, int], ...] | None]] = {
    "all hold": ((0x1000, 0x2000, 1024, 1), None),
    "one pointer": ((0x1000, 0x2002, 1024, 1), (("y", 16),)),
    "a stride": ((0x1000, 0x2000, 1024, 2), (("stride", 1),)),
    "two of four": ((0x1000, 0x2000, 1000, 2), (("n", 16), ("stride", 1))),
    "one of two, which is nearer than two of four": ((0x1000, 0x2002, 1000, 1), (("y", 16),)),
    "more fail than hold": ((0x1002, 0x2002, 1000, 1), None),
    "none holds": ((0x1002, 0x2002, 1000, 2), None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_nearest_set_is_named_if_it_is_near(make: Make, tensor: Any, fakecuda: FakeCuda, kind: str) -> None:
    (x, y, n, stride), expected = KINDS[kind]
    add = make(PARAMS, name=next(NAMES), hints=HINTS)
    add[(1,)](tensor(x), tensor(y), n, stride)
    assert list(misses(add)) == ([] if expected is None else [expected])


def test_the_value_of_the_first_such_call_is_told(make: Make, tensor: Any) -> None:
    add = make(PARAMS, name=next(NAMES), configs=[{"num_warps": 4}, {"num_warps": 8}], hints=HINTS)
    for warps, address in ((4, 0x2002), (8, 0x2004)):
        add[(1,)](tensor(0x1000), tensor(address), 1024, 1, num_warps=warps)
    assert [miss.failed for miss in runtime.counters().hint_misses if miss.kernel == add.name] == [
        (("y", 16, "0x2002"),),
        (("y", 16, "0x2004"),),
    ]


def test_hints_of_members_and_calls_that_python_resolves_are_named_too(make: Make, tensor: Any) -> None:
    add = make({"group": "(*fp16,i32)", "n": "i32"}, name=next(NAMES), hints=[{"group.0": 16, "group.1": 16, "n": 16}])
    add[(1,)]((tensor(0x1000), 5), 16)
    assert list(misses(add)) == [(("group.1", 16),)]
    assert misses(add)[("group.1", 16),].failed == (("group.1", 16, "int 5"),)


def test_the_log_has_one_line_for_a_kernel_and_more_for_who_debugs(
    make: Make, tensor: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "nojit")
    for name in ("one", "other"):
        add = make(PARAMS, name=name, hints=HINTS)
        for arguments in ((0x1000, 0x2000, 1000, 1), (0x1000, 0x2000, 1024, 2)):
            x, y, n, stride = arguments
            add[(1,)](tensor(x), tensor(y), n, stride)
    said = [
        (record.levelname, record.getMessage()) for record in caplog.records if record.getMessage().startswith("hint")
    ]
    assert [level for level, _ in said] == ["INFO", "DEBUG", "INFO", "DEBUG"]
    assert "kernel=one variant=one-" in said[0][1]
    assert said[0][1].endswith("kernel one misses n:16 (got int 1000) of the hints x:16 y:16 n:16 stride:1")


def test_explaining_counts_nothing_and_warming_counts_as_a_call_does(make: Make, tensor: Any) -> None:
    add = make(PARAMS, name=next(NAMES), hints=HINTS)
    arguments = (tensor(0x1000), tensor(0x2000), 1000, 1)
    add.explain(*arguments)
    add.choices(*arguments)
    assert misses(add) == {}
    add.warmup(*arguments)
    add[(1,)](*arguments)
    assert [miss.kinds for miss in misses(add).values()] == [1]


def test_a_listener_that_raises_ends_the_call(make: Make, tensor: Any, fakecuda: FakeCuda) -> None:
    add = make(PARAMS, name=next(NAMES), hints=HINTS)

    def refuse(event: Event) -> None:
        if event.kind == "hint":
            raise RuntimeError("no slow calls here")

    events.add(refuse)
    try:
        with pytest.raises(RuntimeError, match="no slow calls here"):
            add[(1,)](tensor(0x1000), tensor(0x2000), 1000, 1)
    finally:
        events.remove(refuse)
    assert fakecuda.launch_count() == 0
    add[(1,)](tensor(0x1000), tensor(0x2000), 1000, 1)
    assert fakecuda.launch_count() == 1
