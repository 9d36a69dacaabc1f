"""A run measures everything once, finds the best, survives what kernels do to it, and goes on where it was stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from nojit.aot.tune.measure.child import Child
from nojit.aot.tune.measure.child_main import Setup
from nojit.aot.tune.measure.events import Event, Listed, Lost, Opened, Task, Trying
from nojit.aot.tune.measure.request import ProblemRun, TuneRequest, TuneRun, round_robin
from nojit.aot.tune.measure.tuning_run import read_pruned, tune
from nojit.aot.tune.store.database import Database, open_database
from nojit.aot.tune.store.records import Device, Pruned, identity_of
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.errors import NojitError

from tests.aot.tune.fake_gpu import DEVICE, true_us

Fake = Callable[..., Setup]


class Silent:
    """A view that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.todo = self.known = 0
        self.left_s: list[float] = []

    def begin(self, device: Device, todo: int, known: int) -> None:
        assert device == DEVICE
        self.todo, self.known = todo, known

    def problem(self, listed: Listed) -> None:
        pass

    def event(self, listed: Listed, event: Event) -> None:
        self.events.append(event)

    def ended(self, summary: ProblemRun, left_s: float) -> None:
        self.left_s.append(left_s)


@pytest.fixture
def database(tmp_path: Path):
    with open_database(tmp_path / "some.db", create=True) as opened:
        yield opened


def run(
    setup: Setup,
    database: Database,
    *,
    budget_s: float | None = None,
    exhaustive: bool = False,
    only: Mapping[tuple[str, str, str], frozenset[str]] | None = None,
) -> TuneRun:
    return tune(TuneRequest(setup, budget_s, exhaustive, 0, only), database, Silent())


def best(database: Database, problem: int) -> int:
    """Return the config that was measured as the best, in the last rung that there is."""
    found = [item for item in database.measurements() if item.problem == problem and item.status == "ok"]
    last = max(item.rung for item in found)
    return min((item for item in found if item.rung == last), key=lambda item: item.median_us or 0).config


def test_some_configs_of_some_problems(fake: Fake, database: Database, tmp_path: Path) -> None:
    run(fake(), database)
    problem = database.problems()[min(database.problems())]
    configs = [config for config in database.configs().values() if config.kernel == problem.kernel][:2]
    asked = frozenset(identity_of(config.settings) for config in configs)
    name = (database.kernels()[problem.kernel].name, problem.name, problem.dtype)
    with open_database(tmp_path / "other.db", create=True) as other:
        summary = run(fake(), other, exhaustive=True, only={name: asked})
        found = {str(other.configs()[item.config].settings) for item in other.measurements()}
    assert [(one.kernel, one.name, one.configs) for one in summary.problems] == [(*name[:2], 2)]
    assert found == {str(config.settings) for config in configs}


def test_every_problem_gets_its_best(fake: Fake, database: Database) -> None:
    summary = run(fake(noise=0.01), database)
    assert [problem.complete for problem in summary.problems] == [True] * 3
    assert summary.pairs == 36
    assert summary.pairs_per_s > 0
    assert summary.quick_pairs_per_s
    for number, problem in enumerate(summary.problems):
        truth = min(range(12), key=lambda one: true_us(number, one))
        assert database.configs()[best(database, number + 1)].settings["BLOCK"] == 1 << truth
        assert problem.best_us == pytest.approx(true_us(number, truth), rel=0.05)


def test_what_is_written_down(fake: Fake, database: Database) -> None:
    run(fake(), database)
    (device,), (ran,), (kernel,) = (database.devices(), database.runs(), database.kernels())
    assert database.devices()[device] == DEVICE
    assert database.runs()[ran].torch == "2.11"
    assert len(database.runs()[ran].bundle_digest) == 64
    assert database.runs()[ran].ended
    assert database.kernels()[kernel].key == ("n",)
    assert database.kernels()[kernel].roles == {"tunables": ("BLOCK",)}
    assert [problem.key for problem in database.problems().values()] == [(1,), (2,), (4,)]
    first = database.measurements()[0]
    assert (first.rung, first.clock_mhz, first.image) == (0, 1980, f"{first.config - 1:064x}")


def test_what_is_found_counts_for_all_configs_of_the_same_settings(fake: Fake, database: Database) -> None:
    summary = run(fake(configs=4, rules=["n % 16 == 0", "n > 1"], faults={"2": "wrong"}), database)
    configs = database.configs()
    assert summary.pairs == 12
    assert sorted(config.requires for config in configs.values()) == ["n % 16 == 0"] * 4 + ["n > 1"] * 4
    found: dict[str, list[tuple[object, ...]]] = {}
    for item in database.measurements():
        facts = (item.problem, configs[item.config].settings["BLOCK"], item.rung, item.status, item.median_us)
        found.setdefault(configs[item.config].requires, []).append(facts)
    assert found["n % 16 == 0"] == found["n > 1"]
    assert {block for _, block, _, status, _ in found["n > 1"] if status == "wrong"} == {4}
    again = run(fake(configs=4, rules=["n % 16 == 0", "n > 1"], faults={"2": "wrong"}), database)
    assert (again.known, again.pairs) == (3, 0)


def test_an_exhaustive_run_measures_all_to_the_end(fake: Fake, database: Database) -> None:
    run(fake(), database, exhaustive=True)
    assert len(database.measurements()) == 36
    assert {item.rung for item in database.measurements()} == {3}


def test_wrong_and_failing_configs_are_never_timed(
    fake: Fake, database: Database, happened: Callable[[], list[tuple[str, int, int]]]
) -> None:
    summary = run(fake(problems=1, faults={"0": "wrong", "5": "failed"}), database)
    assert (summary.problems[0].wrong, summary.problems[0].failed) == (1, 1)
    assert {candidate for word, _, candidate in happened() if word == "time"} == set(range(12)) - {0, 5}
    bad = [item for item in database.measurements() if item.status != "ok"]
    assert [(item.status, item.median_us, item.detail) for item in bad] == [
        ("wrong", None, "output 0 is off by 3"),
        ("failed", None, "DriverError: refused"),
    ]


@pytest.mark.parametrize(("fault", "words"), [("lost", "illegal memory access"), ("killed", "signal 9")])
def test_a_dead_process_costs_one_pair(fake: Fake, database: Database, fault: str, words: str) -> None:
    summary = run(fake(problems=2, faults={"3": fault, "7": fault}), database)
    assert [problem.complete for problem in summary.problems] == [True, True]
    assert [problem.failed for problem in summary.problems] == [2, 2]
    bad = [item for item in database.measurements() if item.status == "failed"]
    assert [item.config for item in bad] == [4, 8, 4, 8]
    assert all(words in item.detail for item in bad)


def test_what_ends_the_process_again_and_again_is_not_tried_for_ever(
    fake: Fake, database: Database, happened: Callable[[], list[tuple[str, int, int]]]
) -> None:
    summary = run(fake(problems=5, faults={"3": "killed", "2": "wrong"}), database)
    assert [problem.failed for problem in summary.problems] == [1] * 5
    assert [problem.wrong for problem in summary.problems] == [1] * 5
    assert [place for word, place, config in happened() if (word, config) == ("check", 3)] == [0, 1]
    # nor is a config checked twice for one problem that was wrong before the death
    assert sum(word == ("check", 0, 2) for word in happened()) == 1


def test_a_death_while_timing_is_traced_to_its_config(fake: Fake, database: Database) -> None:
    summary = run(fake(problems=1, faults={"6": "late"}), database)
    assert summary.problems[0].complete
    (bad,) = [item for item in database.measurements() if item.status == "failed"]
    assert (bad.config, bad.detail) == (7, "CUDA error: unspecified launch failure")


def test_a_kernel_that_never_ends_is_ended(fake: Fake) -> None:
    with Child(fake(faults={"0": "hangs"})) as child:
        child.send(Task(0, frozenset(), False, False, 1e9, 1e9, 0))
        assert isinstance(child.receive(), Opened)
        assert child.receive() == Trying(0)
        child._patience_s = 0.01
        assert child.receive() == Lost("the measuring process sent nothing for 0 s")


def test_everything_wrong_is_no_result(fake: Fake, database: Database) -> None:
    summary = run(fake(problems=1, configs=3, faults=dict.fromkeys("012", "wrong")), database)
    assert summary.problems[0].best_us is None
    assert summary.problems[0].wrong == 3


def test_a_problem_that_cannot_be_set_up_is_left_out(fake: Fake, database: Database) -> None:
    summary = run(fake(unready=1), database)
    assert [problem.reason for problem in summary.problems] == ["", "no variant of the bundle serves it", ""]


def test_what_is_refused_at_the_start_is_an_error(fake: Fake, database: Database) -> None:
    with pytest.raises(NojitError, match="expected a CUDA device"):
        run(fake(refuses="expected a CUDA device"), database)
    setup = replace(fake(), gpu="no_such_module:gpu")
    with pytest.raises(NojitError, match="expected no_such_module to be installed on the measuring machine, got none"):
        run(setup, database)


def test_a_file_that_problems_lack_is_named(fake: Fake, database: Database) -> None:
    setup = fake()
    facts = Path(f"{setup.bundle}.json")
    facts.unlink()
    with pytest.raises(NojitError, match=f"^No such file or directory - at {facts}$"):
        run(setup, database)


def test_what_was_measured_is_not_measured_again(
    fake: Fake, database: Database, happened: Callable[[], list[tuple[str, int, int]]]
) -> None:
    run(fake(faults={"0": "killed"}), database)
    before = len(happened())
    again = run(fake(faults={"0": "killed"}), database)
    assert (again.known, again.problems) == (3, ())
    assert len(happened()) == before
    whole = run(fake(faults={"0": "killed"}), database, exhaustive=True)
    assert len(whole.problems) == 3
    # what killed the process once is not tried again
    assert [word for word in happened()[before:] if word[0] == "check" and word[2] == 0] == []


@pytest.mark.parametrize("known", [1, 3])
def test_a_problem_of_other_sizes_is_refused_before_anything_is_measured(
    fake: Fake, database: Database, happened: Callable[[], list[tuple[str, int, int]]], known: int
) -> None:
    run(fake(problems=known), database)
    before, runs = len(happened()), len(database.runs())
    message = "expected problem 'problem 0' (tune, bf16) of kernel add to be as stored, n = 1, got n = 5"
    with pytest.raises(NojitError, match=re.escape(message)):
        run(fake(scale=5), database)
    assert (len(happened()), len(database.runs())) == (before, runs)


def test_what_the_build_left_out_is_kept_once(fake: Fake, database: Database) -> None:
    setup = fake(problems=2)
    with BundleFile(setup.bundle) as file:
        digest = file.digest
    pruned = [{"kernel": "add", "label": "BLOCK=1", "reason": "spills"}, {"kernel": "mul", "label": "a", "reason": "b"}]
    report = setup.bundle.with_suffix(".report.json")
    report.write_text(json.dumps({"digest": "other", "pruned": pruned}), encoding="utf-8")
    assert read_pruned(setup.bundle, digest) == {}
    report.write_text(json.dumps({"digest": digest, "pruned": pruned}), encoding="utf-8")
    run(setup, database)
    run(setup, database, exhaustive=True)
    assert database.pruned() == (Pruned(1, 1, "BLOCK=1", "spills"),)
    report.write_text("[]", encoding="utf-8")
    assert read_pruned(setup.bundle, digest) == {}


def test_kernels_take_turns() -> None:
    listed = [
        Listed(kernel, f"{n}", "tune", "", "", {}) for kernel, count in (("a", 3), ("b", 1)) for n in range(count)
    ]
    assert round_robin(listed) == [0, 3, 1, 2]


def test_a_budget_ends_a_run_and_the_next_goes_on(
    fake: Fake, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = fake(problems=6)
    # a clock that goes on by a minute whenever somebody looks at it
    clock = SimpleNamespace(monotonic=map(float, range(0, 1 << 20, 60)).__next__)
    monkeypatch.setattr("nojit.aot.tune.measure.tuning_run.time", clock)
    first = run(setup, database, budget_s=900)
    assert 0 < first.left < 6
    second = run(setup, database)
    assert second.left == 0
    assert second.known == sum(problem.complete for problem in first.problems)
    assert second.known + len(second.problems) == 6


SCRIPT = """
import signal; signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
import sys
from nojit.aot.cli import main
from nojit.aot.cli.commands.tune import run as tune_run
tune_run._GPU = "tests.aot.tune.fake_gpu:open_gpu"
sys.argv[1:1] = ["tune", "run"]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_resumes(fake: Fake, database: Database, tmp_path: Path, number: signal.Signals) -> None:
    setup = fake(problems=4, waits=2)
    command = [sys.executable, "-c", SCRIPT, str(setup.bundle), "--problems", "fake", "--out", str(database.path)]
    said = tmp_path / "said"
    with said.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, env=os.environ)
    log = tmp_path / "some.nojit.json.log"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not database.measurements():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    process.wait(120)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    told = said.read_text().endswith("ed: results so far are stored; run the same command to continue\n")
    assert told == (number != signal.SIGKILL)
    kept = len(database.measurements())
    assert kept >= 12
    assert log.exists()
    summary = run(fake(problems=4), database)
    assert summary.left == 0
    assert {problem.complete for problem in summary.problems} == {True}
    assert summary.known + len(summary.problems) == 4
