"""`nojit manifest`: a manifest from a recording, which plans without mistakes and builds at least what was recorded."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import triton.language as tl
from nojit.aot.compile import compiler
from nojit.aot.plan.planner import Plan, make_plans
from nojit.aot.recording.grids import Sample, grid_of
from nojit.aot.recording.places import read_recordings
from nojit.aot.recording.plan import make_plans as make_recorded_plans
from nojit.aot.recording.to_manifest import Written, manifest_of
from nojit.runtime.errors import RecordingError
from nojit.runtime.values import identity

from tests.aot.recording import programs
from tests.runtime.recording.programs import kernels
from tests.support.recordings import Recorder, Tensor

pytestmark = pytest.mark.triton

ROOT = Path(__file__).resolve().parents[3]


def write(tmp_path: Path) -> Written:
    return manifest_of(read_recordings([tmp_path / "r"]).recording, "demo")


def entry(written: Written, name: str) -> dict[str, Any]:
    return next(each for each in tomllib.loads(written.text)["kernel"] if each["name"] == name)


def planned(tmp_path: Path, written: Written) -> Plan:
    path = tmp_path / "demo.toml"
    path.write_text(written.text)
    (plan,) = make_plans([path], ["sm_90"], "full", compiler, project=ROOT)
    return plan


def facts(plan: Plan) -> set[Any]:
    """Spell what calls can tell of each variant without its hints."""
    return {
        (
            kernel.spec.name,
            variant.signature,
            tuple(sorted((name, identity(value)) for name, value in variant.constexprs)),
            tuple(sorted((name, repr(value)) for name, value in variant.options if name != "debug")),
        )
        for kernel in plan.kernels
        for variant in kernel.variants
    }


def test_a_manifest_of_many_kinds_of_calls_builds_what_was_recorded(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.add, Tensor("fp16"), Tensor("fp16"), 7, BLOCK=128, num_warps=8)
    recorder.call(programs.optional, Tensor(), None, 1.5)
    recorder.call(programs.optional, Tensor(), (Tensor(address=4100), 1), 3, DTYPE=tl.float16, MODE="none")
    recorder.call(programs.own_warps, Tensor(), BLOCK=64, num_warps=2)
    recorder.call(programs.laid_out, Tensor("i32"), 256, LAYOUT)
    recorder.call(kernels.kernel, Tensor(), 7, 5, BLOCK=64)
    recorder.call(kernels.with_activation, Tensor(), kernels.squash, BLOCK=64)
    (exact,) = make_recorded_plans(read_recordings([tmp_path / "r"]), (), compiler, name="demo")
    assert facts(exact) <= facts(planned(tmp_path, write(tmp_path)))


LAYOUT = programs.FLAT


def test_a_full_product_is_a_matrix_and_pointers_of_one_dtype_are_an_axis(recorder: Recorder, tmp_path: Path) -> None:
    for dtype in ("fp16", "fp32"):
        for block in (64, 128):
            recorder.call(programs.add, Tensor(dtype), Tensor(dtype), 7, BLOCK=block)
    found = entry(write(tmp_path), "add")
    assert found["params"] == {"x_ptr": "*{dtype}", "y_ptr": "*{dtype}", "n": "i32"}
    assert {name: sorted(values) for name, values in found["matrix"].items()} == {
        "dtype": ["fp16", "fp32"],
        "BLOCK": [64, 128],
    }
    assert "point" not in found
    assert planned(tmp_path, write(tmp_path)).count() == 8


def test_an_incomplete_product_is_points(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor("fp16"), Tensor("fp16"), 7, BLOCK=64)
    recorder.call(programs.add, Tensor("fp32"), Tensor("fp32"), 7, BLOCK=128)
    found = entry(write(tmp_path), "add")
    points = sorted((each["values"]["dtype"], each["values"]["BLOCK"]) for each in found["point"])
    assert points == [("fp16", 64), ("fp32", 128)]


def test_hints_of_all_calls_become_a_set_and_others_a_comment(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(address=4100), 16, BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 16, BLOCK=64)
    written = write(tmp_path)
    assert entry(written, "add")["hints"] == [{"n": 16, "x_ptr": 16}]
    assert "# in some recorded calls only: y_ptr = 16" in written.text


def test_winners_become_configs_and_a_tuning_key(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, num_warps=2)
    recorder.call(programs.add, Tensor(), Tensor(), 700, BLOCK=256, num_warps=8, launches=9)
    for n, block in ((7, 64), (700, 256)):
        recorder.writer.add(
            "winner",
            module=programs.__name__,
            qualname="add",
            closure=recorder.write_closure(programs.add),
            key=[["n", n], ["x_ptr", "torch.float32"]],
            config={"kwargs": [["BLOCK", block]], "options": [["num_warps", 2]]},
            time_ns=None,
        )
    written = write(tmp_path)
    found = entry(written, "add")
    assert found["configs"] == [{"BLOCK": 256, "num_warps": 8}, {"BLOCK": 64, "num_warps": 2}]
    assert "matrix" not in found
    assert found["tuning"] == {"key": ["n"], "bucket": "exact"}
    assert planned(tmp_path, written).count() == 4


def test_a_grid_that_fits_all_samples_is_written_and_another_is_a_comment(recorder: Recorder, tmp_path: Path) -> None:
    for n in (100, 1000):
        recorder.call(programs.add, Tensor(), Tensor(), n, BLOCK=64, grid=(-(-n // 64),))
        recorder.call(kernels.kernel, Tensor(), n, 5, BLOCK=64, grid=(n + 3,))
    written = write(tmp_path)
    assert entry(written, "add")["grid"] == ["cdiv(n, BLOCK)"]
    assert "grid" not in entry(written, "kernel")
    assert "[1003] for" in written.text
    planned(tmp_path, written)


@pytest.mark.parametrize(
    ("grids", "words"),
    [
        ([((2, 3), 100, 24), ((4, 5), 200, 40)], ("cdiv(m, BM)", "cdiv(n, BN)")),
        ([((6,), 100, 24), ((20,), 200, 40)], ("cdiv(m, BM) * cdiv(n, BN)",)),
        ([((100, 1, 1), 100, 1), ((200, 1, 1), 200, 1)], ("m",)),
        ([((132,), 100, 1), ((132,), 200, 1)], ("132",)),
        ([((1,), 5, 5)], ("cdiv(m, BM)",)),
        ([((7, 2), 100, 24), ((9, 4), 200, 40)], (None, "cdiv(m, BM)")),
    ],
)
def test_products_of_ceiling_divisions_are_found(grids: Any, words: Any) -> None:
    tiles = {"BM": 64, "BN": 8}
    samples = [Sample(grid, {"m": m, "n": n}, tiles) for grid, m, n in grids]
    if words == ("cdiv(m, BM)", "cdiv(n, BN)"):
        samples = [Sample((-(-s.params["m"] // 64), -(-s.params["n"] // 8)), s.params, tiles) for s in samples]
    assert grid_of(samples) == words


def test_no_samples_give_no_grid() -> None:
    assert grid_of([]) == ()


def test_functions_that_a_manifest_cannot_name_are_left_out(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, change={"module": "__main__"})
    written = write(tmp_path)
    assert written.kernels == ("add_" + written.kernels[0].rpartition("_")[2],)
    assert written.left_out == ("__main__:add: a manifest cannot import it",)


def test_a_recording_without_such_functions_is_an_error(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, change={"module": "torch._inductor"})
    with pytest.raises(RecordingError, match="build the recording itself"):
        write(tmp_path)


def test_the_command_writes_a_file_that_plans(
    recorder: Recorder,
    tmp_path: Path,
    run: Callable[..., Any],
    document: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    monkeypatch.chdir(ROOT)
    path = tmp_path / "add.toml"
    assert run("manifest", tmp_path / "r", "-o", path).exit_code == 0
    assert run("build", path, "-n").exit_code == 0
    again = run("manifest", tmp_path / "r", "-o", path)
    assert (again.exit_code, "--force" in again.output) == (1, True)
    assert document("manifest", tmp_path / "r")["manifest"] == path.read_text()
