"""`nojit build` with recordings: beside manifests, twice, with names, and what it says of mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.recorded_builds.inputs import bundle_name, find_recordings, is_recording
from nojit.runtime.bundle.file import BundleFile
from nojit.runtime.recording.file import read_recording, write_recording

from tests.aot.recorded_builds import programs
from tests.runtime.recording.programs import kernels
from tests.support.recordings import Recorder, Tensor

Run = Callable[..., Any]

pytestmark = pytest.mark.triton


def test_recordings_build_beside_manifests(
    recorder: Recorder, tmp_path: Path, run: Run, write_manifest: Callable[..., Path]
) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    (tmp_path / "demo.py").write_text("import triton\n\n\n@triton.jit\ndef nothing(n):\n    pass\n")
    entry = '[[kernel]]\nname = "nothing"\nsource = "demo.py:nothing"\nparams = { n = "i32" }\n'
    manifest = write_manifest(entry)
    result = run("build", manifest, tmp_path / "r", "--out", tmp_path / "out", "-j", 1)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "out").glob("*.nojit")) == [
        "demo-1.0-sm_90.nojit",
        "r-1.0-sm_90.nojit",
    ]
    clash = run("build", manifest, tmp_path / "r", "--name", "demo", "--out", tmp_path / "out", "-j", 1)
    assert (clash.exit_code, "pass --name" in clash.output) == (1, True)


def test_a_second_build_reads_nothing_and_a_changed_recording_is_built_again(
    recorder: Recorder, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    words = ("build", tmp_path / "r", "--out", tmp_path / "out", "-j", 1)
    run(*words)
    assert "is up to date" in run(*words).stdout
    with monkeypatch.context() as patch:
        patch.setattr("nojit.aot.cli.building.run_build.run", lambda *_: pytest.fail("expected a stamp"))
        assert "is up to date" in run(*words).stdout
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=128)
    assert "2 variants (1 cached)" in run(*words).stdout
    Recorder(tmp_path / "r").call(programs.checked, Tensor("i32"))
    assert "3 variants (2 cached)" in run(*words).stdout


def test_launch_counts_do_not_change_a_bundle(recorder: Recorder, tmp_path: Path, run: Run) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    words = ("build", tmp_path / "r", "--out", tmp_path / "out", "-j", 1)
    run(*words)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, launches=100)
    assert "is up to date" in run(*words).stdout


def test_the_same_recording_elsewhere_gives_the_same_bytes(recorder: Recorder, tmp_path: Path, run: Run) -> None:
    recorder.call(kernels.kernel, Tensor(), 7, 5, BLOCK=64)
    recorder.call(kernels.with_activation, Tensor(), kernels.squash, BLOCK=64)
    write_recording(read_recording(tmp_path / "r"), tmp_path / "elsewhere" / "x.nojitrec")
    run("build", tmp_path / "r", "--name", "demo", "--out", tmp_path / "a", "-j", 1)
    run(
        "build",
        tmp_path / "elsewhere",
        "--name",
        "demo",
        "--out",
        tmp_path / "b",
        "--cache-dir",
        tmp_path / "c",
        "-j",
        1,
    )
    name = "demo-1.0-sm_90.nojit"
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_bundle_is_verified_by_a_rebuild_from_the_recording(recorder: Recorder, tmp_path: Path, run: Run) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=128, trial=True)
    run("build", tmp_path / "r", "--trials", "--out", tmp_path / "out", "-j", 1)
    (part,) = (tmp_path / "r").iterdir()
    words = ("verify", tmp_path / "out/r-1.0-sm_90.nojit", "--rebuild", "-j", 1, "--sources")
    rebuilt = run(*words, tmp_path / "r")
    assert rebuilt.exit_code == 0, rebuilt.output
    part.write_text(part.read_text().replace('"BLOCK",64', '"BLOCK",32'))
    assert run(*words, tmp_path / "r").exit_code == 1


def test_a_twin_has_line_info_of_the_recorded_lines(recorder: Recorder, tmp_path: Path, run: Run) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    result = run("build", tmp_path / "r", "--debug-info", "twin", "--out", tmp_path / "out", "-j", 1)
    assert result.exit_code == 0, result.output
    with BundleFile(tmp_path / "out/debug/r-debug-1.0-sm_90.nojit") as twin:
        assert any(b"programs:add" in image for image in twin.images())


def test_a_dry_run_names_what_cannot_be_built(recorder: Recorder, tmp_path: Path, run: Run) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, num_ctas=2)
    words = ("build", tmp_path / "r", "--arch", "sm_80", "-n")
    result = run(*words)
    assert (result.exit_code, "FAILED" in result.stderr, "num_ctas=2" in result.stderr) == (1, True, True)
    assert run(*words, "-k").exit_code == 0


def test_a_failure_to_compile_is_named_and_the_rest_is_built(recorder: Recorder, tmp_path: Path, run: Run) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=63)
    words = ("build", tmp_path / "r", "--out", tmp_path / "out", "-j", 1)
    assert run(*words).exit_code == 1
    result = run(*words, "-k")
    assert (result.exit_code, "BLOCK=63" in result.stderr, "power of 2" in result.stderr) == (1, True, True)
    with BundleFile(tmp_path / "out/r-1.0-sm_90.nojit") as bundle:
        assert bundle.entry("add").variants == 1


def test_another_triton_than_the_recorded_one_is_a_warning(tmp_path: Path, run: Run) -> None:
    Recorder(tmp_path / "r", triton="3.8.0").call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    result = run("build", tmp_path / "r", "--out", tmp_path / "out", "-j", 1)
    assert (result.exit_code, "pip install triton==3.8.0" in result.stderr) == (0, True)


def test_problems_of_a_recording_are_warnings(recorder: Recorder, tmp_path: Path, run: Run) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.writer.add("problem", what="a grid that needs values", where="serve.py:7")
    assert "a grid that needs values - at serve.py:7" in run("build", tmp_path / "r", "-n").stderr


def test_bad_names_of_bundles_are_refused(tmp_path: Path, run: Run) -> None:
    result = run("build", tmp_path, "--name", "../x")
    assert (result.exit_code, "first a letter" in result.output) == (2, True)


def test_what_is_a_recording(tmp_path: Path) -> None:
    for name in (
        "a.nojitrec",
        "parts/1-2.jsonl",
        "several/b.nojitrec",
        "mixed/c.nojitrec",
        "mixed/m.toml",
        "empty/x",
        "signed/x-1.0-sm_90.intoto.jsonl",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    places = [tmp_path / name for name in ("a.nojitrec", "parts", "several", "mixed", "empty", "signed")]
    assert [is_recording(place) for place in places] == [True, True, True, False, False, False]
    assert find_recordings(places[:3]) == [tmp_path / "a.nojitrec", tmp_path / "parts", tmp_path / "several/b.nojitrec"]


@pytest.mark.parametrize(
    ("place", "name"),
    [("serve.nojitrec", "serve"), ("my run", "my-run"), ("7b.nojitrec", "recording-7b"), ("vllm-0.9_x", "vllm-0.9_x")],
)
def test_a_bundle_has_the_name_of_its_recording(place: str, name: str) -> None:
    assert bundle_name(Path(place)) == name
