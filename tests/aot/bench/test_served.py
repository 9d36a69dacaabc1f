"""The checks of served programs, up to what only a device says: when they fail, and that a time limit ends every process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.aot.bench.conftest import load_script

ONE, OTHER = "a" * 64, "b" * 64


@pytest.fixture(scope="module")
def processes() -> ModuleType:
    return load_script("processes")


@pytest.fixture(scope="module")
def served(processes: ModuleType) -> ModuleType:
    # `processes` is imported by it
    assert processes
    return load_script("served")


@pytest.fixture
def checks_of(served: ModuleType, tmp_path: Path) -> Callable[..., Any]:
    """Make the checks of a program that prints these texts, one for each of its runs."""

    def make(*texts: str, seconds: float = 60.0) -> Any:
        path = tmp_path / "program.py"
        counter = tmp_path / "counter"
        path.write_text(
            f"import pathlib; counter = pathlib.Path({str(counter)!r}); ran = len(counter.read_text()) if counter.exists() else 0\n"
            f"counter.write_text('.' * (ran + 1)); print({list(texts)}[ran])\n"
        )
        program = served.Program("demo", path)
        machine = served.Machine("sm_90", 1, dict(os.environ), time.monotonic() + seconds, rehearsal=False)
        return served.Checks(program, machine, tmp_path, served.Report(None))

    return make


def test_a_time_limit_ends_the_children_of_a_command(processes: ModuleType, tmp_path: Path) -> None:
    child = f"import pathlib, time; time.sleep(2); pathlib.Path({str(tmp_path / 'alive')!r}).touch()"
    script = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        processes.run([sys.executable, "-c", script], folder=tmp_path, environment=dict(os.environ), seconds=1.0)
    assert time.monotonic() - began < 20
    time.sleep(2.5)
    assert not (tmp_path / "alive").exists()


def test_a_program_for_which_no_time_is_left_failed(served: ModuleType, checks_of: Callable[..., Any]) -> None:
    checks = checks_of(ONE, seconds=0.0)
    checks.run()
    report = checks._report.found
    assert report
    assert {status for status, _, _ in report} == {served.FAILED}
    assert report[0][2] == "no time is left"


@pytest.mark.parametrize("texts", [(f"x {ONE}", f"x {OTHER}"), ("loss 1.5", "loss 1.5")])
def test_a_program_without_an_output_to_compare_failed(
    served: ModuleType, checks_of: Callable[..., Any], texts: tuple[str, str]
) -> None:
    checks = checks_of(*texts)
    checks._recorded = served._outputs(texts[0])
    checks._call(checks._live())
    with pytest.raises(served.Failure, match="expected an output with the same bits in both runs, got none of"):
        checks._repeat()


def test_outputs_that_the_jit_does_not_repeat_are_named(served: ModuleType, checks_of: Callable[..., Any]) -> None:
    texts = (f"x {ONE}\ny {ONE}", f"x {ONE}\ny {OTHER}")
    checks = checks_of(*texts)
    checks._recorded = served._outputs(checks._call(checks._live())[0])
    assert checks._repeat() == "except 1 of 2: y"
    assert checks._stable == {"x"}
