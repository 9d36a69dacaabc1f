"""`nojit coverage`: which recorded specializations bundles serve, and why they miss others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import triton.language as tl
from nojit.aot.recorded_builds.coverage import Coverage, coverage_of
from nojit.aot.recorded_builds.inputs import read_recordings
from nojit.runtime.bundle.file import BundleFile

from tests.aot.recorded_builds import programs
from tests.runtime.recording.programs import kernels
from tests.support.bundles import kernel, make_bundle
from tests.support.recordings import Recorder, Tensor

pytestmark = pytest.mark.triton

Run = Callable[..., Any]


@pytest.fixture
def build(tmp_path: Path, run: Run) -> Callable[..., Path]:
    def make(*words: object, name: str = "demo") -> Path:
        result = run("build", tmp_path / "r", "--name", name, "--out", tmp_path / "out", "-j", 1, *words)
        assert result.exit_code == 0, result.output
        return tmp_path / "out"

    return make


def cover(tmp_path: Path, folder: str = "r", *archs: str) -> Coverage:
    files = [BundleFile(path) for path in sorted((tmp_path / "out").glob("*.nojit"))]
    try:
        return coverage_of(read_recordings([tmp_path / folder]).recording, files, archs)
    finally:
        for file in files:
            file.close()


CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (kernels.kernel, (Tensor(), 7, 5), {"BLOCK": 64}),
    (kernels.kernel, (Tensor(address=4100), 16, 1), {"BLOCK": 128, "num_warps": 8, "DTYPE": tl.float16}),
    (kernels.with_activation, (Tensor(), kernels.squash), {"BLOCK": 64}),
    (programs.add, (Tensor(), Tensor(), 1), {"BLOCK": 64, "maxnreg": 64, "enable_fp_fusion": False}),
    (programs.add, (Tensor(), Tensor(), 1 << 40), {"BLOCK": 64}),
    (programs.own_warps, (Tensor(),), {"BLOCK": 64, "num_warps": 2}),
    (programs.optional, (Tensor(), None, 1.5), {}),
    (programs.optional, (Tensor(), (Tensor(address=4100), 1), 3), {"DTYPE": tl.float16, "MODE": "none"}),
    (programs.optional, (Tensor(), None, True), {}),
    (programs.with_rest, (Tensor("i32"), 16, 3), {}),
    (programs.checked, (Tensor("i32"),), {"debug": True}),
    (programs.named_default, (Tensor("i32"),), {}),
]


def test_what_was_recorded_is_served(recorder: Recorder, tmp_path: Path, build: Callable[..., Path]) -> None:
    for function, args, kwargs in CALLS:
        recorder.call(function, *args, launches=3, **kwargs)
    build()
    coverage = cover(tmp_path)
    assert not coverage.missed
    assert not any(each.fewer_hints for each in coverage.checked)
    assert len(coverage.checked) == len(CALLS)
    counts = {each.kernel.rpartition(":")[2]: each for each in coverage.kernels}
    assert (counts["optional"].specializations, counts["optional"].served) == (3, 3)
    assert (counts["optional"].launches, counts["optional"].launches_served) == (9, 9)


MISSES: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((Tensor("fp16"), Tensor(), 7), {"BLOCK": 64}, "x_ptr: expected *fp32"),
    ((Tensor(), Tensor(), 7), {"BLOCK": 128}, "BLOCK is 64, got 128"),
    ((Tensor(), Tensor(), 7), {"BLOCK": 64, "num_warps": 8}, "num_warps is 4, got 8"),
    (
        (Tensor(), Tensor(), 7),
        {"BLOCK": 64, "enable_fp_fusion": False},
        "no variant has other values of enable_fp_fusion",
    ),
    ((Tensor(address=4100), Tensor(), 7), {"BLOCK": 64}, "expects x_ptr divisible by 16"),
]


@pytest.mark.parametrize("number", range(len(MISSES)))
def test_a_miss_says_why(recorder: Recorder, tmp_path: Path, build: Callable[..., Path], number: int) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    build()
    args, kwargs, reason = MISSES[number]
    Recorder(tmp_path / "s").call(programs.add, *args, launches=5, **kwargs)
    (miss,) = cover(tmp_path, "s").missed
    assert (reason in miss.reason, miss.launches, miss.bundle) == (True, 5, "")


def test_a_variant_with_fewer_hints_serves(recorder: Recorder, tmp_path: Path, build: Callable[..., Path]) -> None:
    recorder.call(programs.add, Tensor(), Tensor(address=4100), 7, BLOCK=64)
    build()
    Recorder(tmp_path / "s").call(programs.add, Tensor(), Tensor(), 16, BLOCK=64)
    (checked,) = cover(tmp_path, "s").checked
    assert (checked.reason, checked.fewer_hints) == ("", True)


def test_a_drifted_source_is_a_miss_that_names_both(
    recorder: Recorder, tmp_path: Path, build: Callable[..., Path]
) -> None:
    recorder.call(kernels.make(4), Tensor(), BLOCK=64)
    build()
    Recorder(tmp_path / "s").call(kernels.make(5), Tensor(), BLOCK=64)
    coverage = cover(tmp_path, "s")
    (miss,) = coverage.missed
    assert miss.reason.startswith(
        f"source drifted: recorded closure {coverage.kernels[0].closure[:12]}, the bundles have "
    )


def test_a_function_among_constexprs_that_drifted_is_a_miss(
    recorder, tmp_path: Path, build: Callable[..., Path]
) -> None:
    recorder.call(kernels.with_activation, Tensor(), kernels.squash, BLOCK=64)
    build()
    other = Recorder(tmp_path / "s")
    lie = kernels.with_activation, Tensor(), kernels.squash
    name = f"{kernels.__name__}:squash"
    other.call(*lie, BLOCK=64, change={"functions": [[name, other.write_closure(kernels.through)]]})
    (miss,) = cover(tmp_path, "s").missed
    assert miss.reason == f"the function {name} drifted"


def test_a_kernel_that_no_bundle_has_or_that_was_built_for_another_arch(recorder, tmp_path: Path, build) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    build()
    recorder.call(programs.optional, Tensor(), None, 1.5)
    assert [each.reason for each in cover(tmp_path).missed] == ["no bundle has the kernel"]
    reasons = {each.kernel.rpartition(":")[2]: each.reason for each in cover(tmp_path, "r", "sm_100").missed}
    assert reasons["add"] == "not built for sm_100: the bundles have images for sm_90a"


def test_trials_and_bundles_of_manifests_do_not_count(recorder: Recorder, tmp_path: Path, build) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=128, trial=True)
    build()
    make_bundle(tmp_path / "out/a.nojit", kernel("add", {"x_ptr": "*fp32"}))
    assert len(cover(tmp_path).checked) == 1


def test_a_recording_without_launches_is_not_taken_for_a_served_one(
    recorder: Recorder, tmp_path: Path, build: Callable[..., Path], run: Run
) -> None:
    """A full disk may have cut it off after its first line."""
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    out = build()
    (part,) = (tmp_path / "r").iterdir()
    beginning = tmp_path / "beginning.nojitrec"
    beginning.write_bytes(part.read_bytes().splitlines(keepends=True)[0])
    result = run("coverage", beginning, out)
    assert result.exit_code == 1
    assert (
        f"expected launches of kernels in the recording: run more of the program, got none - at {beginning}"
        in result.stderr
    )


def test_the_command_fails_if_something_misses(
    recorder: Recorder, tmp_path: Path, build: Callable[..., Path], run: Run, document: Callable[..., Any]
) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, launches=2)
    out = build()
    result = run("coverage", tmp_path / "r", out)
    assert (result.exit_code, "1 of 1 specialization served" in result.stdout) == (0, True)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, num_warps=8, launches=9)
    result = run("coverage", tmp_path / "r", out)
    assert (result.exit_code, "MISS" in result.stderr, "9 launches" in result.stderr) == (1, True, True)
    written = document("coverage", tmp_path / "r", out, code=1)
    assert written["covered"] is False
    assert [each["launches_served"] for each in written["kernels"]] == [2]
    assert [each["reason"] for each in written["specializations"]].count("") == 1
