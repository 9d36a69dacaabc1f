"""`nojit inspect` and `nojit diff` say what a kernel was tuned for, and never thousands of numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from click.testing import Result
from nojit.runtime.table.tuning import TunedDevice, Tuning, TuningBlock, TuningRow, TuningTable

from tests.support.bundles import kernel, make_bundle

Run = Callable[..., Result]
DEVICE = TunedDevice("NVIDIA H200", "sm_90", 132, 140 << 30)


def bundle(path: Path, best: int | None, costs: Iterable[tuple[int, str]] = ()) -> Path:
    """Write a bundle whose kernel is tuned for two problems; not at all if `best` is None."""
    tuning = None
    if best is not None:
        block = TuningBlock.of((0,), (TuningRow((16,), (best,), (0,)), TuningRow((4096,), (0,), (0,))), costs)
        tuning = Tuning(("n",), "pow2", (TuningTable(DEVICE, (block,)),))
    configs = [{"num_warps": 1}, {"num_warps": 2}]
    return make_bundle(path, kernel("scale", {"n": "i32"}, configs=configs, tuning=tuning, batch=["n"]))


def test_inspect_says_what_it_is_tuned_for(run: Run, tmp_path: Path) -> None:
    path = bundle(tmp_path / "a.nojit", 1)
    shown = run("inspect", path, "--kernel", "scale").stdout
    assert "by n, pow2 buckets" in shown
    assert "NVIDIA H200: 2 problems of 1 case\n" in shown
    assert ["batch", "n"] in [line.split() for line in shown.splitlines()]
    tuning = json.loads(run("inspect", path, "--kernel", "scale", "--json").stdout)["kernel"]["tuning"]
    assert tuning["tables"][0]["blocks"] == [
        {"cases": [0], "costs": [], "rows": [[[16], [1], [0]], [[4096], [0], [0]]]}
    ]


def test_inspect_says_where_costs_decide(run: Run, tmp_path: Path) -> None:
    path = bundle(tmp_path / "a.nojit", 1, [(0, "key0 1000 *"), (1, "500000")])
    shown = run("inspect", path, "--kernel", "scale").stdout
    assert "NVIDIA H200: 2 problems of 1 case; elsewhere costs decide for 1 of them\n" in shown


def test_diff_says_that_a_tuning_differs(run: Run, tmp_path: Path) -> None:
    one, other, none = (bundle(tmp_path / f"{best}.nojit", best) for best in (1, 0, None))
    assert "tuning: other configs or problems" in run("diff", one, other).stdout
    assert "tuning: none -> by n, pow2 buckets, NVIDIA H200 (2 problems)" in run("diff", none, one).stdout
    assert "tuning" not in run("diff", one, one).stdout
