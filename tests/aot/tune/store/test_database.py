"""The database keeps what it is given, finds it again, and refuses what is not its own."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from nojit.aot.tune.store.database import Database, open_database
from nojit.aot.tune.store.records import Config, Device, KernelFacts, Measurement, Problem, Pruned, Run
from nojit.aot.tune.store.sql_schema import VERSION
from nojit.runtime.errors import NojitError
from nojit.runtime.values import DType

DEVICE = Device("NVIDIA H200", "sm_90", 132, 150754820096, "580.82.07", "GPU-1")
KERNEL = KernelFacts("add", ("n", "a * b"), {"dtype": (("bf16", "fp16"),)}, {"tunables": ("BLOCK",)})
RUN = Run(1, "2026-01-01T00:00:00+00:00", "a.nojit", "ab" * 32, "0.1.0", "2.11", 60.0, 0)
PROBLEM = Problem(
    1, "small", "tune", "square", "bf16", {"dtype": "bf16", "WIDE": True}, (1024, 7), {"n": 1024}, 6144, 0
)
CONFIG = Config(1, {"BLOCK": 128, "num_warps": 4, "T": DType("fp16"), "f": 1.0, "none": None}, "n > 3")
MEASUREMENT = Measurement(1, 1, 1, "cd" * 32, "ok", 0, 5, 10.5, 0.01, 10.25, 1980, RUN.started)


@pytest.fixture
def database(tmp_path: Path):
    with open_database(tmp_path / "some.db", create=True) as opened:
        yield opened


def fill(database: Database) -> None:
    database.add_device(DEVICE)
    database.add_kernel(KERNEL)
    database.start_run(RUN)
    database.add_problem(PROBLEM)
    database.add_config(CONFIG)


def test_everything_comes_back(database: Database) -> None:
    fill(database)
    database.record([MEASUREMENT, replace(MEASUREMENT, status="wrong", median_us=None, detail="off by 3")])
    database.record_pruned([Pruned(1, 1, "BLOCK=4", "spills")])
    with open_database(database.path) as again:
        assert again.devices() == {1: DEVICE}
        assert again.kernels() == {1: KERNEL}
        assert again.runs() == {1: RUN}
        assert again.problems() == {1: PROBLEM}
        assert again.configs() == {1: CONFIG}
        assert again.measurements()[0] == MEASUREMENT
        assert again.measurements()[1].detail == "off by 3"
        assert again.pruned() == (Pruned(1, 1, "BLOCK=4", "spills"),)


def test_values_keep_their_types(database: Database) -> None:
    fill(database)
    number = database.add_config(replace(CONFIG, settings={**CONFIG.settings, "f": 1}))
    assert number == 2
    assert type(database.configs()[1].settings["f"]) is float
    assert database.problems()[1].case["WIDE"] is True


def test_what_is_added_twice_is_one(database: Database) -> None:
    fill(database)
    fill(database)
    assert len(database.devices()) == len(database.problems()) == len(database.configs()) == 1
    assert len(database.runs()) == 2


def test_what_is_picked(database: Database) -> None:
    fill(database)
    database.add_problem(replace(PROBLEM, use="held_out"))
    database.record([MEASUREMENT, replace(MEASUREMENT, problem=2)])
    assert [item.problem for item in database.measurements(use="held_out")] == [2]
    assert database.measurements(kernel=9) == ()
    assert len(database.measurements(kernel=1, device=1)) == 2
    assert list(database.problems(kernel=1, use="tune")) == [1]
    assert database.configs(kernel=2) == {}


def test_a_run_ends(database: Database) -> None:
    fill(database)
    assert database.runs()[1].ended is None
    database.end_run(1)
    assert database.runs()[1].ended is not None


def test_a_problem_stays_what_it_was(database: Database) -> None:
    fill(database)
    other = replace(PROBLEM, sizes={"n": 2048, "flag": True}, key=(2048, 7), moved_bytes=12288)
    what = "expected problem 'small' (tune, bf16) of kernel add to be as stored"
    for changed, was, got in (
        (other, "n = 1024", "flag = true, n = 2048"),
        (
            replace(other, case={"dtype": "fp16"}),
            'n = 1024, WIDE = true, dtype = "bf16"',
            'flag = true, n = 2048, dtype = "fp16"',
        ),
        (replace(PROBLEM, moved_bytes=7), "moved_bytes 6144", "moved_bytes 7"),
        (replace(PROBLEM, sizes={}), "n = 1024", "no sizes"),
    ):
        with pytest.raises(NojitError) as refused:
            database.add_problem(changed)
        assert str(refused.value) == f"{what}, {was}, got {got}; measure into another file - at {database.path}"


def test_sizes_are_those_that_a_problem_had(database: Database) -> None:
    fill(database)
    database.check_sizes("add", "tune", "small", "bf16", sizes={"n": 1024})
    for kernel, use, name in (("add", "held_out", "small"), ("add", "tune", "large"), ("mul", "tune", "small")):
        database.check_sizes(kernel, use, name, "bf16", sizes={"n": 1})
    with pytest.raises(NojitError, match=r"to be as stored, n = 1024, got n = true; measure into another file - at "):
        database.check_sizes("add", "tune", "small", "bf16", sizes={"n": True})


def test_a_kernel_is_what_was_said_last(database: Database) -> None:
    fill(database)
    assert database.add_kernel(replace(KERNEL, key=("n",))) == 1
    assert database.kernels()[1].key == ("n",)


def test_a_batch_is_whole_or_absent(database: Database) -> None:
    fill(database)
    with pytest.raises(sqlite3.IntegrityError):
        database.record([MEASUREMENT, replace(MEASUREMENT, problem=99)])
    assert database.measurements() == ()


def test_strangers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_database(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("no database, but text that is long enough to look at" * 20)
    with pytest.raises(NojitError, match="expected a database of measurements"):
        open_database(tmp_path / "text.db")
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE own (x)")
    other.close()
    with pytest.raises(NojitError, match="version 0"):
        open_database(tmp_path / "other.db", create=True)


@pytest.mark.parametrize("create", [False, True])
def test_what_cannot_be_opened_is_named(tmp_path: Path, create: bool) -> None:
    with pytest.raises(NojitError, match="got a folder") as caught:
        open_database(tmp_path, create=create)
    assert caught.value.where == str(tmp_path)
    # a journal beside it would be all that SQLite writes
    (tmp_path / "device").symlink_to("/dev/null")
    with pytest.raises(NojitError, match="got a device"):
        open_database(tmp_path / "device", create=create)
    assert [path.name for path in tmp_path.iterdir()] == ["device"]


def test_an_empty_file_is_not_filled_by_who_reads(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with pytest.raises(NojitError, match="got an empty file"):
        open_database(path)
    assert not path.stat().st_size
    with open_database(path, create=True) as database:
        assert database.runs() == {}


def make_old(path: Path) -> None:
    """Make a file what version 1 wrote."""
    with sqlite3.connect(path) as other:
        other.execute("ALTER TABLE problem DROP COLUMN weight")
        other.execute('ALTER TABLE problem RENAME COLUMN "case" TO meaning')
        other.execute("PRAGMA user_version = 1")
    other.close()


def version_of(path: Path) -> int:
    with sqlite3.connect(path) as other:
        (version,) = other.execute("PRAGMA user_version").fetchone()
    other.close()
    return int(version)


def test_a_file_of_version_1_is_read_as_it_is_and_written_as_one_of_now(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with open_database(path, create=True) as database:
        fill(database)
        known = database.problems()
    make_old(path)
    before = path.read_bytes()
    with open_database(path) as database:
        assert database.problems() == known
        assert {one.weight for one in known.values()} == {1.0}
    assert path.read_bytes() == before
    with open_database(path, create=True) as database:
        assert database.problems() == known
    assert version_of(path) == VERSION


def test_another_programs_file_of_version_1_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "odd.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE problem (x)")
        other.execute("PRAGMA user_version = 1")
    other.close()
    before = path.read_bytes()
    with pytest.raises(NojitError, match="expected a database of measurements, version 3, got version 1"):
        open_database(path, create=True)
    assert path.read_bytes() == before


def test_a_problem_may_come_to_weigh_more(tmp_path: Path) -> None:
    with open_database(tmp_path / "t.db", create=True) as database:
        fill(database)
        (number, one), *_ = database.problems().items()
        assert database.add_problem(replace(one, weight=4.0)) == number
        assert database.problems()[number].weight == 4.0
        database.weigh("add", one.use, one.name, one.dtype, weight=2.0)
        assert database.problems()[number].weight == 2.0
        database.weigh("another", one.use, one.name, one.dtype, weight=3.0)
        assert database.problems()[number].weight == 2.0


def test_what_breaks_while_it_is_read_is_named(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "odd.db") as other:
        other.execute("CREATE TABLE own (x)")
        other.execute(f"PRAGMA user_version = {VERSION}")
    other.close()
    with pytest.raises(NojitError, match="got no such table: device"), open_database(tmp_path / "odd.db") as database:
        database.devices()


def test_a_killed_writer_leaves_whole_batches(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from dataclasses import replace
from tests.aot.tune.store.test_database import MEASUREMENT, fill, open_database
with open_database(sys.argv[1], create=True) as database:
    fill(database)
    database.record([MEASUREMENT] * 3)
    database._connection.execute("BEGIN IMMEDIATE")
    database._insert("measurement", {name: getattr(MEASUREMENT, name) for name in MEASUREMENT.__slots__})
    os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "some.db"
    root = Path(__file__).resolve().parents[4]
    ended = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=False, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert ended.returncode == -signal.SIGKILL
    with open_database(path) as database:
        assert len(database.measurements()) == 3
