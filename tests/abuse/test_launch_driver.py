"""Driver calls of a launch fail in turn, each function with many codes: a typed error, nothing left over, and a retry works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.fakecuda import FakeCuda
from tests.support.bundles import kernel, make_bundle
from tests.support.drill import DRILLS, Outcome, Raised, Setup

ROOT = Path(__file__).parents[2]
CODES = (2, 3, 100, 201, 209, 218, 222, 300, 400, 700, 709, 719, 900, 999)
STICKY = (700, 719)
LOST_CONTEXT = (201, 709)
# what fails without harm: the launch is done, or the primary context is taken in place of the current one
HARMLESS = ("cuCtxPopCurrent_v2", "cuCtxGetDevice")
# of the launch itself and of what readies a kernel for it, which is tried again in a renewed context
LAUNCH = (
    "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuLaunchKernel", "cuLaunchKernelEx", "cuTensorMapEncodeTiled",
    "cuKernelGetParamInfo", "cuKernelGetFunction",
)  # fmt: skip


@pytest.fixture(scope="module")
def bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    simple = {"x": "*fp16", "n": "i32"}
    return make_bundle(
        tmp_path_factory.mktemp("bundle") / "launches.nojit",
        kernel("add", {"x": "*fp16", "y": "*fp16", "n": "i32"}, hints=[{"n": 16}]),
        kernel("plain", {"n": "i32"}),
        kernel("described", {"n": "i32", "block": "tensordesc<fp16[64,64]>"}),
        kernel("tupled", {"x": "(*fp16,(i32,none))"}),
        kernel("scratch", simple, launch={"global_scratch_bytes": 64, "global_scratch_align": 128}),
        kernel(
            "wide",
            simple,
            configs=[{"num_warps": 4, "num_ctas": 16}],
            launch={"shared_bytes": 60_000, "pdl": True, "profile_scratch_bytes": 8},
        ),
    )


def codes() -> tuple[int, ...]:
    """The codes to try: NOJIT_FAULT_CODES where each case is slow."""
    asked = os.environ.get("NOJIT_FAULT_CODES", "")
    return tuple(map(int, asked.split(","))) if asked else CODES


def outcome_of(line: str) -> Outcome:
    words: dict[str, Any] = json.loads(line)
    for name in ("first", "again"):
        words[name] = Raised(**words[name]) if words[name] else None
    return Outcome(**{name: tuple(value) if isinstance(value, list) else value for name, value in words.items()})


@pytest.fixture
def outcomes(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    bundle_path: Path,
    fakecuda: FakeCuda,
    faketorch_module: ModuleType,
) -> list[Outcome]:
    """Every case of the drill that the test is about."""
    special = tuple(code for code in codes() if code in (3, *STICKY, *LOST_CONTEXT))
    setup = Setup(str(bundle_path), str(fakecuda.path), str(faketorch_module.__file__), request.param, codes(), special)
    path = tmp_path / "setup.json"
    path.write_text(json.dumps(asdict(setup)))
    command = [sys.executable, "-m", "tests.support.drill", str(path)]
    done = subprocess.run(
        command, cwd=ROOT, env=fakecuda.environment(90, 90), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [outcome_of(line) for line in done.stdout.splitlines()]


def check_error(raised: Raised, case: Outcome) -> None:
    function = case.function.removesuffix("_v2")
    assert raised.kind == "DriverError"
    assert raised.code == case.code
    if case.code == 3:
        assert "CUDA was initialised before fork" in raised.message
    elif case.code in STICKY:
        assert "the process must be restarted" in raised.message
    else:
        assert raised.call == function
        assert f"{function} failed, got CUDA_ERROR" in raised.message


def check_first(case: Outcome) -> None:
    if case.first is not None:
        check_error(case.first, case)
        assert case.launches[0] == 0
        # one that does not start is nothing to serve with
        assert case.healthy == (case.code not in STICKY and case.function != "cuInit")
    else:
        lost = case.function in LAUNCH and case.code in LOST_CONTEXT
        assert lost or case.function in HARMLESS, "an error was swallowed"


def check_again(case: Outcome) -> None:
    if case.code in STICKY:
        assert case.again is not None
        assert "the process must be restarted" in case.again.message
        assert case.again.code == case.code
        return
    assert case.again is None
    assert case.argument == -1 or (case.launches[1] == 1 and case.argument in (0x1000, 0x4000_0000, 5, 7))


def check_left_over(case: Outcome) -> None:
    # a pop that the driver refused leaves what was pushed
    if case.function != "cuCtxPopCurrent_v2" and case.code not in STICKY:
        assert case.depths[0] == case.depths[1]
    assert case.scratch[0] == case.scratch[1]
    assert case.violations == ()


def check(outcomes: list[Outcome]) -> None:
    """Check every case, and show the first few that are wrong."""
    assert outcomes
    failures = []
    for case in outcomes:
        try:
            check_first(case)
            check_again(case)
            check_left_over(case)
        except AssertionError as error:
            failures.append(f"{case}\n  {str(error).splitlines()[0]}")
    assert not failures, "\n".join([f"{len(failures)} of {len(outcomes)} cases", *failures[:5]])


@pytest.mark.parametrize("outcomes", DRILLS, indirect=True)
def test_a_driver_call_that_fails_is_a_typed_error_and_leaves_no_trace(outcomes: list[Outcome]) -> None:
    check(outcomes)
