"""What a recording's bundle says of its kernels, and nothing of their source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.compile.triton import compiler
from nojit.aot.recorded_builds.inputs import read_recordings
from nojit.aot.recorded_builds.origins import recorded_triton
from nojit.aot.recorded_builds.recorded_plans import make_plans
from nojit.runtime.errors import RecordingError
from nojit.runtime.recording.closure import capture
from nojit.runtime.recording.drift import drift_of
from nojit.runtime.recording.origins import ATTACHMENT, Distribution, Origins, Winner, read_origins

from tests.aot.recorded_builds import programs
from tests.runtime.recording.programs import kernels
from tests.support.recordings import Recorder, Tensor

pytestmark = pytest.mark.triton


def origins(folder: Path, *archs: str) -> Origins:
    plans = make_plans(read_recordings([folder]), archs, compiler, name="demo")
    return read_origins(dict(plans[0].attachments)[ATTACHMENT], "demo")


def test_a_kernel_is_described_by_its_function_and_drift_is_found(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(kernels.with_activation, Tensor(), kernels.squash, BLOCK=64, num_warps=8, enable_fp_fusion=False)
    found = origins(tmp_path / "r")
    (origin,) = found.kernels
    assert (found.triton, found.torch) == ("3.9.0", "2.13.0")
    assert (origin.kernel, origin.qualname) == ("with_activation", "with_activation")
    assert drift_of(kernels.with_activation, origin.fingerprint) == ""
    assert "differs" in drift_of(programs.add, origin.fingerprint)
    assert list(origin.options) == ["enable_fp_fusion", "maxnreg", "num_ctas", "num_stages", "num_warps"]
    ((name, known),) = origin.functions.items()
    assert drift_of(kernels.squash, known) == ""
    assert name.endswith(":squash")


def test_no_source_is_in_the_bundle(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(kernels.kernel, Tensor(), 7, 5, BLOCK=64)
    (plan,) = make_plans(read_recordings([tmp_path / "r"]), (), compiler, name="demo")
    raw = dict(plan.attachments)[ATTACHMENT]
    texts = [each["text"] for each in capture(kernels.kernel)["definitions"]]
    lines = {line.strip() for text in texts for line in text.splitlines() if len(line.strip()) > 12}
    assert not [line for line in lines if line.encode() in raw]


def test_a_kernel_that_an_arch_lacks_has_no_origin_there(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.checked, Tensor("i32"), num_ctas=2)
    assert [each.kernel for each in origins(tmp_path / "r", "sm_90").kernels] == ["add", "checked"]
    assert [each.kernel for each in origins(tmp_path / "r", "sm_80").kernels] == ["add"]


def won(recorder: Recorder, key: Any, block: int, time_ns: int | None = None, **changes: Any) -> None:
    closure = recorder.write_closure(programs.add)
    line: dict[str, Any] = {
        "module": programs.__name__,
        "qualname": "add",
        "closure": closure,
        "key": key,
        "config": {"kwargs": [["BLOCK", block]], "options": [["num_warps", 4]]},
        "time_ns": time_ns,
    }
    recorder.writer.add("winner", **line | changes)


def test_of_a_keys_winners_the_fastest_is_kept(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    won(recorder, [["n", 7]], 64)
    won(recorder, [["n", 7]], 128, 2000)
    won(recorder, [["n", 7]], 256, 1000)
    won(recorder, [["n", 8]], 512)
    won(recorder, [["n", 9]], 512, qualname="other")
    (origin,) = origins(tmp_path / "r").kernels
    assert origin.winners == (
        Winner(("n",), (7,), {"BLOCK": 256, "num_warps": 4}),
        Winner(("n",), (8,), {"BLOCK": 512, "num_warps": 4}),
    )


def test_a_winner_of_torch_compile_keeps_its_config(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    won(recorder, "digest", 64)
    config = {"BLOCK": 64, "num_warps": 4}
    assert origins(tmp_path / "r").kernels[0].winners == (Winner((), ("digest",), config),)


def test_a_damaged_winner_is_refused(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    won(recorder, [["n"]], 64)
    with pytest.raises(RecordingError, match="winners of autotuners"):
        origins(tmp_path / "r")


def test_distributions_are_listed_with_their_licences(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.writer.add("distribution", name="liger", version="0.5", license="BSD")
    assert origins(tmp_path / "r").distributions == (Distribution("liger", "0.5", "BSD"),)


def test_recordings_of_two_versions_of_triton_do_not_merge(tmp_path: Path) -> None:
    for number, version in enumerate(("3.9.0", "3.8.0")):
        Recorder(tmp_path / f"{number}", triton=version).call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorded = read_recordings([tmp_path / "0", tmp_path / "1"])
    with pytest.raises(RecordingError, match=r"3\.8\.0, 3\.9\.0"):
        recorded_triton(recorded.recording)


def test_the_stand_ins_version_is_that_of_the_triton_it_stands_for(tmp_path: Path) -> None:
    Recorder(tmp_path / "r", triton="3.9.0+nojit").call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    assert recorded_triton(read_recordings([tmp_path / "r"]).recording) == "3.9.0"


def test_inspect_says_that_a_bundle_is_from_a_recording(
    recorder: Recorder, tmp_path: Path, run: Callable[..., Any], document: Callable[..., Any]
) -> None:
    recorder.call(kernels.make(4), Tensor(), BLOCK=64)
    recorder.writer.add("distribution", name="liger", version="0.5", license="BSD")
    assert run("build", tmp_path / "r", "--out", tmp_path / "out", "-j", 1, "-q").exit_code == 0
    shown = run("inspect", tmp_path / "out/r-1.0-sm_90.nojit").output
    assert "a recording of 1 kernel with Triton 3.9.0 and torch 2.13.0" in shown
    assert "liger 0.5 (BSD)" in shown
    assert "make.<locals>.scaled" in run("inspect", tmp_path / "out", "--kernel", "make_scaled").output
    found = document("inspect", tmp_path / "out/r-1.0-sm_90.nojit")["recording"]
    assert found["kernels"][0]["qualname"] == "make.<locals>.scaled"
