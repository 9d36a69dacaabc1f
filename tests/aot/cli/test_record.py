"""``nojit record``: a program runs as it does alone, and its recording lies where the command says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")
pytest.importorskip("triton")
from nojit.runtime.recording.file import Writer, read_recording

from tests.aot.conftest import ROOT

NOJIT = [sys.executable, "-m", "nojit"]
PROGRAM = [sys.executable, "-m", "tests.runtime.recording.programs.program"]
# without a width, which xdist sets
VARIABLES = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
VARIABLES |= {"PYTHONPATH": str(ROOT), "TRITON_DEFAULT_FP_FUSION": "1"}


def record(*words: object, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*NOJIT, "record", *map(str, words)],
        env=VARIABLES | variables,
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    return done


def test_a_program_is_recorded_into_one_file(tmp_path: Path) -> None:
    path = tmp_path / "new/x.nojitrec"
    done = record("-o", path, "--", *PROGRAM)
    assert done.stdout == "done\n"
    first, _, row = done.stderr.splitlines()[:3]
    assert first == f"{path}: 1 kernel, 1 specialization, 3 launches, 1 process, sm_90"
    assert row.split() == ["__main__:scale", "1", "3", "-", "-", "-"]
    assert len(read_recording(path).specializations) == 1
    assert [each.name for each in path.parent.iterdir()] == ["x.nojitrec"]


def test_an_unknown_arch_to_simulate_is_a_warning(tmp_path: Path) -> None:
    done = record("--fake", "sm_91", "-o", tmp_path / "x.nojitrec", "--", sys.executable, "-c", "", code=1)
    said = "nojit: a build may refuse the recording: no known GPU is of sm_91; did you mean 'sm_90'?\n"
    assert done.stderr.startswith(said)


def test_a_merge_simulates_nothing(tmp_path: Path) -> None:
    done = record("--merge", "--fake", "sm_90", "-o", tmp_path / "x.nojitrec", tmp_path, code=2)
    assert "expected --fake without --merge, which runs no program" in done.stderr


def test_a_folder_as_the_recording_is_refused_before_the_program_runs(tmp_path: Path) -> None:
    done = record("-o", tmp_path, "--", *PROGRAM, code=1)
    assert (done.stdout, done.stderr) == (
        "",
        f"error: expected a file to write the recording to, got a folder - at {tmp_path}\n",
    )
    assert not list(tmp_path.iterdir())


def test_options_of_the_program_need_no_dashes(tmp_path: Path) -> None:
    done = record("-o", tmp_path / "x.nojitrec", *PROGRAM, "exit", "--json", "-v", code=7)
    assert done.stdout == ""
    assert "3 launches" in done.stderr


def test_json_is_all_of_standard_output(tmp_path: Path) -> None:
    path = tmp_path / "x.nojitrec"
    done = record("--json", "-o", path, "--", *PROGRAM)
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["kernels"] == [
        {"name": "__main__:scale", "specializations": 1, "launches": 3, "trials": 0, "warmups": 0, "winners": 0}
    ]
    assert (document["exit_code"], document["processes"], document["archs"]) == (0, 1, ["sm_90"])
    assert "done" in done.stderr


def test_a_program_that_dies_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "x.nojitrec"
    done = record("-o", path, "--", *PROGRAM, "kill", code=137)
    assert "8 launches" in done.stderr
    assert path.exists()


def test_children_are_merged(tmp_path: Path) -> None:
    done = record("-o", tmp_path / "x.nojitrec", "--", *PROGRAM, "fork")
    assert "1 kernel, 2 specializations, 13 launches, 3 processes" in done.stderr


def test_packages_of_the_sources_are_named_with_what_is_known_of_them(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "r", {"triton": "3.9.0", "torch": "", "arch": "sm_90", "fake": True})
    for name, version, licence in (("acme", "2.1", "BSD"), ("bare", "1.0", ""), ("beside", "", "")):
        writer.add("distribution", name=name, version=version, license=licence)
    done = record("--merge", "-o", tmp_path / "x.nojitrec", tmp_path / "r")
    assert done.stderr.splitlines()[1:] == [
        "source of acme 2.1, licence: BSD",
        "source of bare 1.0, licence: not stated",
        "source of beside, which no installed distribution holds, licence: not known",
    ]


def test_a_signal_reaches_the_program(tmp_path: Path) -> None:
    path = tmp_path / "x.nojitrec"
    with subprocess.Popen(
        [*NOJIT, "record", "-o", str(path), "--", *PROGRAM, "signal"],
        env=VARIABLES,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 9
    assert path.exists()


def test_a_program_without_kernels_is_an_error(tmp_path: Path) -> None:
    done = record("-o", tmp_path / "x.nojitrec", "--", sys.executable, "-c", "print('on')", code=1)
    assert done.stdout == "on\n"
    assert "error: expected a program that launches kernels of Triton: nothing was recorded" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_failure_of_a_program_without_kernels_is_its_own(tmp_path: Path) -> None:
    done = record("-o", tmp_path / "x.nojitrec", "--", sys.executable, "-c", "raise SystemExit(5)", code=5)
    assert "nothing was recorded" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = record("-o", tmp_path / "x.nojitrec", "--", "no-such-program", code=1)
    assert "expected a program to run, got No such file or directory - at no-such-program" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_interpreter_is_refused_before_the_program_runs(tmp_path: Path) -> None:
    done = record("-o", tmp_path / "x.nojitrec", "--", *PROGRAM, code=1, TRITON_INTERPRET="1")
    assert "unset TRITON_INTERPRET" in done.stderr
    assert done.stdout == ""


def test_recordings_are_merged_into_one(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.nojitrec" for name in "ab"]
    record("-o", paths[0], "--", *PROGRAM)
    record("-o", paths[1], "--", *PROGRAM, "threads")
    done = record("-o", tmp_path / "c.nojitrec", "--merge", *paths)
    assert "1 kernel, 3 specializations, 1,203 launches, 2 processes" in done.stderr
    # and again, with itself
    record("-o", tmp_path / "d.nojitrec", "--merge", tmp_path / "c.nojitrec", *paths)
    assert (tmp_path / "c.nojitrec").read_bytes() == (tmp_path / "d.nojitrec").read_bytes()


FAKE_PROGRAM = """
import sys, torch
assert torch.cuda.get_device_capability() == (9, 0)
import triton, triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (256, 512)], key=["n"])
@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    tl.store(x, tl.load(x))

x = torch.ones(5000, device="cuda")
for _ in range(3):
    scale[lambda meta: (triton.cdiv(5000, meta["BLOCK"]),)](x, 5000)
kernel = scale.fn[(1,)](x, 7, BLOCK=16)
kernel[4, 1, 1](x, 7, 16)
if len(sys.argv) > 1:
    x.sum().item()
"""


@pytest.mark.parametrize("asks", [False, True])
def test_a_program_is_recorded_without_a_gpu(tmp_path: Path, asks: bool) -> None:
    pytest.importorskip("torch")
    program, path = tmp_path / "program.py", tmp_path / "x.nojitrec"
    program.write_text(FAKE_PROGRAM, encoding="utf-8")
    words = [sys.executable, program, *(["item"] if asks else [])]
    done = record("--fake", "sm_90", "-o", path, "--", *words, code=int(asks))
    assert "1 kernel, 2 specializations, 5 launches, 1 process, sm_90" in done.stderr
    assert (f"not recorded: {tmp_path.name}/program.py:17: Tensor.item()" in done.stderr) == asks
    recording = read_recording(path)
    assert [each["fake"] for each in recording.processes.values()] == [True]
    assert sorted(sample["grid"] for each in recording.samples.values() for sample in each) == [[1], [4, 1, 1], [20]]
    # a simulated GPU takes no time
    assert [each["time_ns"] for each in recording.winners] == [None]
