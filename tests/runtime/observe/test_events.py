"""What the runtime says of what it does: to counters, to `logging`, to listeners; and that it says nothing else."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nojit import runtime
from nojit.runtime import loader
from nojit.runtime.errors import NoMatchingVariantError
from nojit.runtime.observe import events
from nojit.runtime.observe.events import Event

from tests.fakecuda import FakeCuda
from tests.runtime.conftest import Make
from tests.support.bundles import kernel, make_bundle, target

ADD = kernel("add", {"n": "i32"}, configs=[{"num_warps": 4}, {"num_warps": 8}])


@pytest.fixture
def heard() -> Iterator[list[Event]]:
    said: list[Event] = []
    listener = events.add(said.append)
    yield said
    events.remove(listener)


@pytest.fixture
def bundle(tmp_path: Path, fakecuda: FakeCuda) -> Iterator[loader.Bundle]:
    with loader.load(make_bundle(tmp_path / "a.nojit", ADD)) as opened:
        yield opened


def test_a_first_launch_opens_loads_and_plans(tmp_path: Path, fakecuda: FakeCuda, heard: list[Event]) -> None:
    path = make_bundle(tmp_path / "a.nojit", ADD)
    before, started = time.time_ns(), time.perf_counter_ns()
    with loader.load(path) as bundle:
        add = bundle.kernel("add")
        add[(1,)](1)
        (file,) = bundle.files
        variant = file.table("add").variant_id(0)
    elapsed_ns = time.perf_counter_ns() - started
    opened, loaded, planned = heard
    assert (opened.kind, opened.bundle, opened.detail, opened.device) == ("open", file.id, str(path), -1)
    assert (loaded.kind, loaded.bundle, loaded.kernel, loaded.variant) == ("load", file.id, "add", variant)
    assert (loaded.device, loaded.detail) == (0, "image=0")
    assert (planned.kind, planned.bundle, planned.kernel, planned.variant) == ("plan", file.id, "add", variant)
    assert 0 < loaded.duration_ns <= planned.duration_ns <= elapsed_ns
    assert before <= opened.end_ns <= loaded.end_ns <= planned.end_ns <= time.time_ns()


def test_a_known_launch_says_nothing(bundle: loader.Bundle, heard: list[Event]) -> None:
    add = bundle.kernel("add")
    add[(1,)](1)
    heard.clear()
    for number in range(2, 7):
        add[(1,)](number)
    assert heard == []


def test_each_variant_is_planned_and_each_image_loaded_once(bundle: loader.Bundle, heard: list[Event]) -> None:
    add = bundle.kernel("add")
    for _ in range(2):
        for warps in (4, 8):
            add[(1,)](1, num_warps=warps)
    assert sorted(event.kind for event in heard) == ["load", "load", "plan", "plan"]
    assert len({event.variant for event in heard}) == 2


def test_preload_and_warmup_load(bundle: loader.Bundle, heard: list[Event]) -> None:
    add = bundle.kernel("add")
    assert add.warmup(1)
    assert [event.kind for event in heard] == ["load", "plan"]
    assert bundle.preload() == 2
    assert [event.kind for event in heard] == ["load", "plan", "load"]
    assert heard[2].variant == bundle.files[0].table("add").variant_id(1)


def test_a_call_that_nothing_serves_is_a_miss(bundle: loader.Bundle, heard: list[Event]) -> None:
    add = bundle.kernel("add")
    missed = runtime.counters().missed
    for count in (1, 2):
        with pytest.raises(NoMatchingVariantError):
            add[(1,)](1, num_warps=16)
        assert runtime.counters().missed == missed + count
    first, second = heard
    assert (first.kind, first.bundle, first.kernel, first.variant) == ("miss", bundle.files[0].id, "add", "")
    assert first.detail.startswith("no variant serves this call; its manifest needs [[kernel.configs]]")
    assert second.device == 0
    # asking is no call
    with pytest.raises(NoMatchingVariantError):
        add.choices(1, num_warps=16)
    assert len(heard) == 2


def test_a_device_without_a_bundle_is_a_miss(tmp_path: Path, fakecuda: FakeCuda, heard: list[Event]) -> None:
    on = target("sm_100a")
    with (
        loader.load(make_bundle(tmp_path / "a.nojit", kernel("add", {"n": "i32"}, on=on), on=on)) as bundle,
        pytest.raises(NoMatchingVariantError),
    ):
        bundle.kernel("add")[(1,)](1)
    assert (heard[-1].kind, heard[-1].bundle, heard[-1].detail) == (
        "miss",
        "",
        "bundle has sm_100a; device is sm_90: nojit build --arch sm_90 builds for it",
    )


def test_bundles_that_are_passed_over_are_logged_with_the_reason(
    tmp_path: Path, fakecuda: FakeCuda, heard: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    archs = ("sm_80", "sm_90a", "sm_90a", "sm_90")
    paths = [
        make_bundle(tmp_path / f"{number}.nojit", kernel("add", {"n": "i32"}, on=target(arch)), on=target(arch))
        for number, arch in enumerate(archs)
    ]
    caplog.set_level(logging.DEBUG, "nojit")
    with loader.Bundle(paths, first_wins=True) as bundle:
        bundle.kernel("add")[(1,)](1)
        bundle.kernel("add")[(1,)](2)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("passed over")]
    assert lines == [
        f"passed over {paths[2]}: add of {paths[1]} comes first",
        f"passed over {paths[0]} (sm_80) kernel=add device=0: the device is sm_90",
        f"passed over {paths[3]} (sm_90) kernel=add device=0: {paths[1]} (sm_90a) fits better",
    ]
    # they are no events
    assert {event.kind for event in heard} == {"open", "load", "plan"}


def test_counters_count(make: Make) -> None:
    before = runtime.counters()
    add = make({"n": "i32"})
    add[(1,)](1)
    add[(1,)](2)
    after = runtime.counters()
    assert (after.opened, after.loaded, after.planned) == (before.opened + 1, before.loaded + 1, before.planned + 1)
    assert after.missed == before.missed
    assert after.load_ns > before.load_ns
    assert after.plan_ns - before.plan_ns >= after.load_ns - before.load_ns
    assert isinstance(after, runtime.Counters)


def test_threads_count_every_event(make: Make, heard: list[Event]) -> None:
    adds = [make({"n": "i32"}, name=f"add_{number}") for number in range(8)]
    before, barrier = runtime.counters(), threading.Barrier(8)

    def run(number: int) -> None:
        barrier.wait()
        for add in adds[number:] + adds[:number]:
            add[(1,)](1)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = runtime.counters()
    assert (after.loaded - before.loaded, after.planned - before.planned) == (8, 8)
    assert sum(event.kind == "plan" for event in heard) == 8


# -- listeners -------------------------------------------------------------------------------------------------------


def test_a_listener_may_launch(bundle: loader.Bundle) -> None:
    add = bundle.kernel("add")
    listener = events.add(lambda event: add[(1,)](1, num_warps=8) if event.kind == "load" else None)
    try:
        add[(1,)](1)
    finally:
        events.remove(listener)
    assert bundle.preload() == 2


def test_what_a_listener_raises_reaches_the_caller_and_the_next_call_works(bundle: loader.Bundle) -> None:
    def raising(event: Event) -> None:
        raise ZeroDivisionError

    listener = events.add(raising)
    add = bundle.kernel("add")
    with pytest.raises(ZeroDivisionError):
        add[(1,)](1)
    events.remove(listener)
    add[(1,)](1)


def test_a_listener_is_removed_once(heard: list[Event]) -> None:
    listener = events.add(heard.append)
    events.remove(listener)
    with pytest.raises(ValueError, match="not in list"):
        events.remove(lambda event: None)


def test_an_event_says_what_it_has() -> None:
    event = Event("load", "0123456789ab", "add", "add-1", 0, "image=3", 5, 1500)
    assert str(event) == "load bundle=0123456789ab kernel=add variant=add-1 device=0 us=1.5 image=3"
    assert str(Event("open", "0", "", "", -1, "", 5, 1500)) == "open bundle=0 us=1.5"


# -- logging ---------------------------------------------------------------------------------------------------------


def test_each_event_is_a_line(bundle: loader.Bundle, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "nojit")
    add = bundle.kernel("add")
    add[(1,)](1)
    with pytest.raises(NoMatchingVariantError):
        add[(1,)](1, num_warps=16)
    lines = [(record.levelname, record.getMessage().split()[0]) for record in caplog.records]
    assert lines == [("INFO", "load"), ("DEBUG", "plan"), ("WARNING", "miss")]
    for record in caplog.records:
        message = record.getMessage()
        assert "\n" not in message
        assert f"bundle={bundle.files[0].id}" in message
        assert "kernel=add" in message
        assert "us=" in message
        assert vars(record)["nojit"].kind == message.split()[0]


def test_levels_are_heeded(bundle: loader.Bundle, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nojit")
    bundle.kernel("add")[(1,)](1)
    assert [record.levelname for record in caplog.records] == ["INFO"]


QUIET = """
import sys
before = set(sys.modules)
{}
from nojit import runtime
bundle = runtime.load(sys.argv[1])
bundle.preload()
try:
    bundle.kernel("add")[(1,)](1, num_warps=16)
except runtime.NoMatchingVariantError:
    print(runtime.counters().missed, "logging" in sys.modules)
"""


@pytest.mark.parametrize(
    ("first", "said"), [("", "1 False\n"), ("import logging", "1 True\n")], ids=["without logging", "with it"]
)
def test_a_program_that_asks_for_no_logs_gets_none(tmp_path: Path, fakecuda: FakeCuda, first: str, said: str) -> None:
    path = make_bundle(tmp_path / "a.nojit", ADD)
    words = [sys.executable, "-c", QUIET.format(first), str(path)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == (said, "")


LOUD = "import logging; logging.basicConfig(level='INFO', format='%(name)s %(message)s')"


def test_a_program_that_asks_for_logs_gets_them(tmp_path: Path, fakecuda: FakeCuda) -> None:
    path = make_bundle(tmp_path / "a.nojit", ADD)
    words = [sys.executable, "-c", QUIET.format(LOUD), str(path)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert [line.split()[:2] for line in ran.stderr.splitlines()] == [
        ["nojit", kind] for kind in ("open", "load", "load", "miss")
    ]


def test_names_cannot_break_a_line(tmp_path: Path, fakecuda: FakeCuda, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nojit")
    path = tmp_path / "a\nforged bundle=0.nojit"
    with loader.load(make_bundle(path, ADD)):
        pass
    assert all("\n" not in record.getMessage() for record in caplog.records)
