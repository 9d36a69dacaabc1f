"""Recordings of whole programs: their threads and children, and how they end."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("triton")
from nojit.runtime.autostart import environment
from nojit.runtime.recording.file import read_recording

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = [sys.executable, "-m", "tests.runtime.recording.programs.program"]


def environment_of(folder, **variables):
    given = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_DEFAULT_FP_FUSION": "1", **variables}
    return environment(given, NOJIT_RECORD=str(folder))


def run(folder, *words, code=0, **variables):
    """Run the program; return its recording and what it wrote to standard error."""
    done = subprocess.run(
        [*PROGRAM, *words],
        env=environment_of(folder, **variables),
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    return read_recording(folder), done.stderr


def launches(recording):
    """Return launches by the block of the specialization."""
    counts = Counter()
    for digest, found in recording.specializations.items():
        counts[dict(found["constexprs"])["BLOCK"]] += recording.launches(digest)
    return counts


def test_a_program_is_recorded_without_a_change(tmp_path):
    recording, stderr = run(tmp_path / "r")
    assert launches(recording) == {64: 3}
    assert stderr == ""
    assert recording.problems == []


def test_threads_lose_no_launch(tmp_path):
    recording, _ = run(tmp_path / "r", "threads")
    assert launches(recording) == {16: 400, 32: 400, 64: 400}
    assert len(recording.processes) == 1
    assert len(recording.closures) == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_are_part_of_the_recording(tmp_path, method):
    recording, _ = run(tmp_path / "r", method)
    assert launches(recording) == {64: 8, 128: 5}
    assert len(recording.processes) == 3
    # the module of a program has another name in children that are spawned
    assert len(recording.closures) == 1
    assert {each["module"] for each in recording.specializations.values()} == {"__main__"}


def test_a_forked_process_counts_its_own_launches(tmp_path):
    recording, _ = run(tmp_path / "r", "os.fork")
    assert launches(recording) == {64: 10}
    assert len(recording.processes) == 2


def test_a_killed_process_keeps_what_it_wrote(tmp_path):
    recording, _ = run(tmp_path / "r", "kill", code=-signal.SIGKILL)
    # of 9 launches, the eighth was the last one to be written
    assert launches(recording) == {64: 8}


def test_two_programs_share_a_folder(tmp_path):
    both = [
        subprocess.Popen([*PROGRAM, "threads"], env=environment_of(tmp_path / "r"), cwd=ROOT, stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    assert [each.wait(300) for each in both] == [0, 0]
    recording = read_recording(tmp_path / "r")
    assert launches(recording) == {16: 800, 32: 800, 64: 800}
    assert len(recording.processes) == 2


def test_a_folder_that_cannot_be_written_stops_recording_alone(tmp_path):
    (tmp_path / "file").write_text("no folder")
    done = subprocess.run(
        PROGRAM,
        env=environment_of(tmp_path / "file"),
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.count("nojit: recording stopped") == 1


def test_the_interpreter_is_a_problem_of_the_recording(tmp_path):
    # what the program then does with its GPU is its own business
    done = subprocess.run(
        [sys.executable, "-c", "import triton; print('on')"],
        env=environment_of(tmp_path / "r", TRITON_INTERPRET="1"),
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "on\n")
    assert "unset TRITON_INTERPRET" in done.stderr
    ((what, _),) = read_recording(tmp_path / "r").problems
    assert "unset TRITON_INTERPRET" in what
