"""A recorded program, served: the driver gets what Triton's JIT would hand to it, and nothing is compiled."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import triton
from nojit.runtime.recording.file import read_recording

from tests.runtime.serve.conftest import PROGRAM, Facts, Recorded
from tests.runtime.serve.programs.program import CALLS

pytestmark = [pytest.mark.triton, pytest.mark.slow]
TRIALS = 3


def untimed(name: str, launches: list[Any]) -> list[Any]:
    """Leave out what an autotuner tried: three trials before the first launch of each of two keys."""
    return launches if name != "tuned" else [launches[TRIALS], *launches[2 * TRIALS + 1 :]]


@pytest.mark.parametrize("name", CALLS)
def test_a_served_call_hands_the_driver_what_the_jit_would(recorded: Recorded, program: Facts, name: str) -> None:
    jit, served = recorded.jit["results"][name], program["results"][name]
    assert not jit["failure"]
    assert served["failure"] == ""
    assert served["launches"] == untimed(name, jit["launches"])
    assert bool(served["launches"]) == (name != "empty grid")


WITHOUT_TRITON = f"""
import sys
import tests.support.hidden_triton
from tests.runtime.serve.programs import program
import triton
assert triton.__version__ == "{triton.__version__}+nojit", triton.__version__
program.main([])
"""


def test_without_triton_the_driver_gets_the_same(recorded: Recorded, program: Facts) -> None:
    facts = json.loads(recorded.serve(sys.executable, "-c", WITHOUT_TRITON))
    assert facts["results"] == program["results"]
    assert (facts["timed"], facts["missed"], facts["violations"]) == (0, 0, [])


def test_a_served_program_times_and_misses_nothing(recorded: Recorded, program: Facts) -> None:
    assert recorded.jit["timed"] == 2 * TRIALS
    assert (program["timed"], program["missed"]) == (0, 0)
    assert program["violations"] == []


def test_each_function_has_its_count_of_launches(program: Facts) -> None:
    counts = {function.rpartition(":")[2]: counts for function, *counts in program["served"]}
    expected = {
        "add": [11, 0, 0],
        "apply": [2, 0, 0],
        "copy": [1, 0, 0],
        "guessed": [2, 0, 0],
        "pair": [1, 0, 0],
        "total": [1, 0, 0],
        "tuned": [3, 0, 0],
    }
    assert counts == {name: each for name, each in expected.items() if name != "total" or "rest" in CALLS}


def test_a_served_program_writes_no_file(recorded: Recorded) -> None:
    facts = json.loads(recorded.serve(sys.executable, "-m", PROGRAM, TRITON_CACHE_DIR=str(recorded.folder / "other")))
    assert not any(each["failure"] for each in facts["results"].values())
    assert not (recorded.folder / "other").exists()


CHILD = """
import subprocess, sys
assert "nojit.runtime.serve.session" not in sys.modules
print(subprocess.check_output([sys.executable, "-m", "{program}", "add"], text=True))
"""


def test_child_processes_are_served_too(recorded: Recorded) -> None:
    facts = json.loads(recorded.serve(sys.executable, "-c", CHILD.format(program=PROGRAM)))
    assert facts["served"] == [["tests.runtime.serve.programs.kernels:add", 1, 0, 0]]


SPAWN = """
import multiprocessing, sys
from pathlib import Path

def work():
    from tests.runtime.serve.programs import program
    program.main(["add"])

if __name__ == "__main__":
    child = multiprocessing.get_context("{method}").Process(target=work)
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes_of_multiprocessing_are_served_too(recorded: Recorded, method: str) -> None:
    script = recorded.folder / f"{method}.py"
    script.write_text(SPAWN.format(method=method), encoding="utf-8")
    facts = json.loads(recorded.serve(sys.executable, script, PYTHONPATH="."))
    assert facts["served"] == [["tests.runtime.serve.programs.kernels:add", 1, 0, 0]]


CONTEXT = """
import json, sys
import nojit
from tests.runtime.serve.programs import program

with nojit.serve(sys.argv[1], preload=True):
    program.main(["add"])
"""


def test_a_program_can_serve_itself(recorded: Recorded) -> None:
    facts = json.loads(recorded.run([sys.executable, "-c", CONTEXT, recorded.bundle]))
    assert facts["served"] == [["tests.runtime.serve.programs.kernels:add", 1, 0, 0]]


def test_a_missing_bundle_fails_the_import_of_triton(recorded: Recorded) -> None:
    script = "try:\n    import triton\nexcept FileNotFoundError as error:\n    print(error)"
    from nojit.runtime.autostart import environment

    variables = environment(recorded.environment, NOJIT_SERVE="/nowhere/artifacts")
    assert "/nowhere/artifacts" in recorded.run([sys.executable, "-c", script], **variables)


def test_a_recorder_of_a_served_program_records_the_misses_alone(recorded: Recorded) -> None:
    path = recorded.folder / "misses.nojitrec"
    serving = [sys.executable, "-m", "nojit.runtime.serve", "--bundle", recorded.bundle, "--miss", "jit", "--"]
    recording = [sys.executable, "-m", "nojit", "record", "-o", path, "--", sys.executable, "-m", PROGRAM]
    facts = json.loads(recorded.run([*serving, *recording, "add", "missed"]))
    assert [len(each["launches"]) for each in facts["results"].values()] == [1, 2]
    found = read_recording(path).specializations.values()
    assert {each["qualname"]: each["options"] for each in found} == {"add": [["num_warps", 1]], "unrecorded": []}
