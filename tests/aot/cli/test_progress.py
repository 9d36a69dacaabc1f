"""How a running build is counted and shown."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from nojit.aot.cli.console import Output
from nojit.aot.cli.progress.build_progress import Counts, Lines, follow_build
from nojit.aot.compile.job_runner import Finished, Job
from nojit.aot.plan.function_facts import SourcePlace
from nojit.aot.plan.plan import Planned
from nojit.aot.variants.variant import Variant
from nojit.runtime.errors import CompileError
from nojit.runtime.table.parts import Config

PLACE = SourcePlace("demo:add", Path(), "demo")


def finished(key: str, *, cached: bool = False, failed: bool = False) -> Finished:
    variant = Variant("add", "sm_90", (), (), (), (), (), Config((), (), ""), 0, ())
    error = CompileError("expected to compile") if failed else None
    return Finished(Job(variant, PLACE, key), None, error, cached)


def test_counts_tell_hits_from_twins() -> None:
    counts = Counts()
    counts.add(finished("hit", cached=True))
    counts.expected = 3
    for event in (
        finished("one"),
        finished("one", cached=True),
        finished("two", failed=True),
        finished("two", failed=True),
    ):
        counts.add(event)
    assert (counts.hits, counts.compiled, counts.failed, counts.ended) == (1, 1, 1, 2)
    assert counts.summary() == "2 of 3 compiled, 1 cached, 1 failed"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _lines(total: int, step_s: float) -> list[str]:
    clock, written, counts = Clock(), [], Counts()
    view = Lines(written.append, clock)
    counts.expected = total
    for number in range(total):
        clock.now += step_s
        counts.add(finished(str(number)))
        view.changed(counts)
    return written


def test_fast_build_gets_a_line_for_every_tenth() -> None:
    lines = _lines(1000, 0.001)
    assert len(lines) == 10
    assert lines[0].startswith("100 of 1,000 compiled, about 0.9 s left")
    assert lines[-1] == "1,000 of 1,000 compiled: add"


def test_slow_build_gets_a_line_every_quarter_of_a_minute() -> None:
    lines = _lines(1000, 3.0)
    assert len(lines) == 200
    assert lines[0] == "5 of 1,000 compiled, about 49 min 45 s left: add"


def test_cache_hits_alone_write_nothing() -> None:
    written: list[str] = []
    view, counts = Lines(written.append), Counts()
    for number in range(100):
        counts.add(finished(str(number), cached=True))
        view.changed(counts)
    assert written == []


def test_no_estimate_before_it_says_something() -> None:
    clock, written, counts = Clock(), [], Counts()
    view = Lines(written.append, clock)
    counts.expected = 300
    # the processes start for a minute, then a variant takes 2 s
    clock.now += 58
    for number in range(33):
        clock.now += 2
        counts.add(finished(str(number)))
        view.changed(counts)
    assert [line.partition(" left")[0] for line in written] == [
        "1 of 300 compiled: add",
        "9 of 300 compiled: add",
        "17 of 300 compiled: add",
        "25 of 300 compiled: add",
        "33 of 300 compiled, about 8 min 54 s",
    ]


def test_planning_and_another_build_are_not_counted() -> None:
    clock, written = Clock(), []
    view = Lines(written.append, clock)
    for _ in range(2):
        clock.now += 1000
        view.planned(Planned("add", "sm_90", 10, 1, 1))
        written.clear()
        counts = Counts(expected=10)
        for number in range(10):
            clock.now += 2
            counts.add(finished(str(number)))
            view.changed(counts)
        assert written[:3] == [
            "1 of 10 compiled: add",
            "2 of 10 compiled, about 16.0 s left: add",
            "3 of 10 compiled, about 14.0 s left: add",
        ]
        assert written[-1] == "10 of 10 compiled: add"


def test_a_build_that_stopped_does_not_count_for_the_next() -> None:
    clock, written = Clock(), []
    view = Lines(written.append, clock)
    for expected, each_s in ((100, 20), (20, 2)):
        written.clear()
        counts = Counts(expected=expected)
        for number in range(8):
            clock.now += each_s
            counts.add(finished(str(number)))
            view.changed(counts)
    assert written[0] == "2 of 20 compiled, about 36.0 s left: add"


def test_time_before_the_first_compilation_is_not_counted() -> None:
    clock, written, counts = Clock(), [], Counts()
    view = Lines(written.append, clock)
    counts.add(finished("hit", cached=True))
    clock.now += 1000
    view.changed(counts)
    counts.expected = 4
    for number in range(2):
        clock.now += 2
        counts.add(finished(str(number)))
        view.changed(counts)
    assert written == ["1 of 4 compiled, 1 cached: add", "2 of 4 compiled, 1 cached, about 4.0 s left: add"]


def test_a_plan_gets_a_line_every_quarter_of_a_minute() -> None:
    clock, written = Clock(), []
    view = Lines(written.append, clock)
    for number in range(1, 41):
        clock.now += 1
        view.planned(Planned(f"k{number}", "sm_90", 100, number, 40))
    assert written == [
        "15 of 40 kernels planned, 1,500 variants: k15 sm_90",
        "30 of 40 kernels planned, 3,000 variants: k30 sm_90",
    ]


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with follow_build(Output(json=False, verbosity=-1)) as view:
        view.planned(Planned("k", "sm_90", 1, 1, 1))
        view.changed(Counts())
        view.failure("x")
        view.note("x")
    assert capsys.readouterr() == ("", "")


def test_bar_on_a_terminal() -> None:
    code = (
        "from nojit.aot.cli.console import Output\n"
        "from nojit.aot.cli.progress.build_progress import Counts, follow_build\n"
        "with follow_build(Output(json=False, verbosity=0)) as view:\n"
        "    view.failure('FAILED \\x1b[2J this')\n"
        "    view.warn('demo has no variant')\n"
        "    view.changed(Counts(expected=4, compiled=1, hits=7, current='add'))\n"
    )
    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", code], stderr=slave, stdout=subprocess.PIPE, env=environment, check=True
    )
    os.close(slave)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert done.stdout == b""
    assert "1 of 4 compiled, 7 cached" in shown
    assert "FAILED \\x1b[2J this" in shown
    assert "\x1b[2Kdemo has no variant\r\n" in shown
    # the cursor is there again
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
