"""`nojit manifest`: a manifest from a recording, which plans without mistakes and builds at least what was recorded."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import triton.language as tl
from nojit.aot.compile.triton import compiler
from nojit.aot.draft.from_recording import Written, manifest_of
from nojit.aot.draft.grids import Sample, grid_of
from nojit.aot.plan.plan import Plan
from nojit.aot.plan.planner import make_plans
from nojit.aot.recorded_builds.inputs import read_recordings
from nojit.aot.recorded_builds.recorded_plans import make_plans as make_recorded_plans
from nojit.runtime import load
from nojit.runtime.tuning.tuned_tables import TunedDevice
from nojit.runtime.values import identity

from tests.aot.recorded_builds import programs
from tests.fakecuda import FakeCuda
from tests.runtime.recording.programs import kernels
from tests.support.recordings import Recorder, Tensor
from tests.support.tensors import PointerTensor

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


DEVICE = {"fake": False, "device": "NVIDIA H200", "multiprocessors": 132, "memory_bytes": 150_109_880_320}


def won(
    recorder: Recorder, n: int, block: int, warps: int, *, dtype: str = "float32", time_ns: int | None = 1000
) -> None:
    """Write that an autotuner of `add` chose a config for a size."""
    recorder.writer.add(
        "winner",
        module=programs.__name__,
        qualname="add",
        closure=recorder.write_closure(programs.add),
        key=[["n", n], ["x_ptr.dtype", f"torch.{dtype}"], ["y_ptr.dtype", f"torch.{dtype}"]],
        config={"kwargs": [["BLOCK", block]], "options": [["num_stages", 3], ["num_warps", warps]]},
        time_ns=time_ns,
    )


def record_tuned(recorder: Recorder, *dtypes: str) -> None:
    """Record launches of `add` as an autotuner chose its configs, another for each size."""
    for dtype in dtypes or ("fp32",):
        for n, block, warps, launches in ((7, 64, 2, 1), (700, 256, 8, 9)):
            tensors, options = (Tensor(dtype), Tensor(dtype)), {"num_warps": warps, "num_stages": 3}
            grid = (-(-n // block),)
            recorder.call(programs.add, *tensors, n, BLOCK=block, grid=grid, launches=launches, **options)


def test_winners_become_configs_a_tuning_key_and_a_tuned_table(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r", **DEVICE)
    record_tuned(recorder)
    won(recorder, 7, 64, 2)
    won(recorder, 700, 256, 8, time_ns=2000)
    # another process measured it too, and slower
    won(recorder, 700, 64, 2, time_ns=3000)
    written = write(tmp_path)
    found = entry(written, "add")
    large = {"BLOCK": 256, "num_stages": 3, "num_warps": 8}
    assert found["configs"] == [large, {"BLOCK": 64, "num_stages": 3, "num_warps": 2}]
    assert "matrix" not in found
    assert found["tuning"] == {"key": ["n"], "bucket": "exact"}
    (table,) = written.tables
    assert (table.kernel, table.key, table.device) == (
        "add",
        ("n",),
        TunedDevice("NVIDIA H200", "sm_90", 132, 150_109_880_320),
    )
    assert dict(table.configs[table.entries[0].rows[1].use[0]].settings) == large
    assert [(row.at, row.us) for row in table.entries[0].rows] == [((7,), (1.0,)), ((700,), (2.0,))]
    assert planned(tmp_path, written).count() == 4


def test_winners_of_each_dtype_have_rows_of_their_own(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r", **DEVICE)
    record_tuned(recorder, "fp16", "fp32")
    won(recorder, 700, 64, 2, dtype="float16")
    won(recorder, 700, 256, 8, dtype="float32")
    won(recorder, 700, 256, 8, dtype="bfloat16")
    (table,) = write(tmp_path).tables
    chosen = {each.where: dict(table.configs[each.rows[0].use[0]].settings)["BLOCK"] for each in table.entries}
    assert chosen == {(("dtype", ("fp16",)),): 64, (("dtype", ("fp32",)),): 256}


@pytest.mark.parametrize(
    "facts",
    [{"fake": True}, {**DEVICE, "multiprocessors": 0}, {**DEVICE, "device": ""}],
    ids=["simulated", "unknown size", "unknown name"],
)
def test_winners_that_no_known_gpu_measured_give_no_table(tmp_path: Path, facts: dict[str, Any]) -> None:
    recorder = Recorder(tmp_path / "r", **facts)
    record_tuned(recorder)
    won(recorder, 700, 256, 8, time_ns=None)
    written = write(tmp_path)
    assert written.tables == ()
    assert "# no tuned table: it needs winners that one GPU measured" in written.text
    assert entry(written, "add")["tuning"]["key"] == ["n"]


def test_winners_of_several_gpus_give_no_table(tmp_path: Path) -> None:
    for name in ("NVIDIA H100", "NVIDIA H200"):
        recorder = Recorder(tmp_path / "r", **DEVICE | {"device": name})
        record_tuned(recorder)
        won(recorder, 700, 256, 8)
    assert write(tmp_path).tables == ()


@pytest.mark.slow
def test_a_build_of_the_manifest_serves_the_recorded_calls_with_the_recorded_winners(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, fakecuda: FakeCuda
) -> None:
    recorder = Recorder(tmp_path / "r", **DEVICE)
    record_tuned(recorder, "fp16", "fp32")
    for dtype in ("float16", "float32"):
        won(recorder, 7, 64, 2, dtype=dtype)
        won(recorder, 700, 256, 8, dtype=dtype)
    monkeypatch.chdir(ROOT)
    path = tmp_path / "demo.toml"
    assert run("manifest", tmp_path / "r", "-o", path).exit_code == 0
    assert [each.name for each in (tmp_path / "tuned").iterdir()] == ["add.nvidia-h200.toml"]
    assert run("manifest", tmp_path / "r", "-o", tmp_path / "other.toml").exit_code == 1
    built = run("build", path, "--out", tmp_path / "artifacts", "--cache-dir", tmp_path / "cache")
    assert built.exit_code == 0, built.output
    kernel = load(tmp_path / "artifacts").kernel("add")
    # the last size was not recorded: it takes the winner of the nearest
    for dtype in ("torch.float16", "torch.float32"):
        for n in (7, 700, 650):
            kernel(PointerTensor(0x10000, dtype), PointerTensor(0x20000, dtype), n, stream=0)
    assert [(launch.grid, launch.block[0] // 32) for launch in fakecuda.launches()] == 2 * [
        ((1, 1, 1), 2),
        ((3, 1, 1), 8),
        ((3, 1, 1), 8),
    ]


def test_a_grid_that_fits_all_samples_is_written_and_another_is_a_comment(recorder: Recorder, tmp_path: Path) -> None:
    for n in (100, 1000):
        recorder.call(programs.add, Tensor(), Tensor(), n, BLOCK=64, grid=(-(-n // 64),))
        recorder.call(kernels.kernel, Tensor(), n, 5, BLOCK=64, grid=(n + 3,))
    written = write(tmp_path)
    assert entry(written, "add")["grid"] == ["cdiv(n, BLOCK)"]
    assert "recorded launches" in next(line for line in written.text.splitlines() if line.startswith("grid"))
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


def test_of_tiles_of_one_size_that_with_the_params_name_is_taken() -> None:
    tiles = {"BLOCK_M": 64, "BLOCK_N": 64}
    samples = [Sample((-(-m // 64), -(-n // 64)), {"m": m, "n": n}, tiles) for m, n in ((100, 240), (200, 700))]
    assert grid_of(samples) == ("cdiv(m, BLOCK_M)", "cdiv(n, BLOCK_N)")


def test_no_samples_give_no_grid() -> None:
    assert grid_of([]) == ()


def test_functions_that_a_manifest_cannot_name_are_left_out(recorder: Recorder, tmp_path: Path) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64)
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, change={"module": "__main__"})
    written = write(tmp_path)
    assert written.kernels == ("add_" + written.kernels[0].rpartition("_")[2],)
    assert written.left_out == ("__main__:add: a manifest cannot import it",)


def test_a_recording_without_such_functions_is_an_error(
    recorder: Recorder, tmp_path: Path, run: Callable[..., Any]
) -> None:
    recorder.call(programs.add, Tensor(), Tensor(), 7, BLOCK=64, change={"module": "torch._inductor"})
    result = run("manifest", tmp_path / "r")
    assert result.exit_code == 1
    assert "build the recording itself, got " in result.stderr
    assert result.stderr.endswith(f" - at {tmp_path}/r\n")


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
