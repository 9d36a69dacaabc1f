"""A tuning on a device: right configs are timed, wrong ones are not, and one that takes the context down costs one pair."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nojit.aot.tune.store.database import open_database

HERE = Path(__file__).with_name("tuning")
FAMILIES = (
    "pointwise",
    "flash_attention",
    "block_sparse",
    "bmm",
    "mm_plus_mm",
    "norm",
    "rotary",
    "scaled_mm",
    "mixed_mm",
    "b2b_gemm",
    "flex_decoding",
)


def tune(bundle: Path, out: Path, problems: str, *words: str) -> dict[str, Any]:
    pytest.importorskip("click")
    command = [sys.executable, "-m", "nojit", "tune", "run", str(bundle), "--problems", problems]
    ended = subprocess.run([*command, "--out", str(out), "--json", *words], check=True, stdout=subprocess.PIPE)
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


@pytest.fixture(scope="module")
def faulty(device, tmp_path_factory) -> Path:
    """Build what is in `tuning/` for this device, with the Triton at hand."""
    pytest.importorskip("triton")
    import torch

    major, minor = torch.cuda.get_device_capability()
    out = tmp_path_factory.mktemp("tuning")
    command = [sys.executable, "-m", "nojit", "build", str(HERE), "--tuning", "--arch", f"sm_{major}{minor}"]
    subprocess.run([*command, "--out", str(out), "--cache-dir", str(out / "cache"), "-q"], check=True)
    return out


def test_faults_cost_one_pair_each(faulty: Path, tmp_path: Path) -> None:
    done = tune(faulty, tmp_path / "a.db", str(HERE / "problems.py"))
    assert [problem["complete"] for problem in done["problems"]] == [True] * 3
    assert [(problem["wrong"], problem["failed"]) for problem in done["problems"]] == [(1, 1)] * 3
    with open_database(tmp_path / "a.db") as database:
        configs = database.configs()
        faults = {item.status: configs[item.config].settings["FAULT"] for item in database.measurements()}
        assert faults == {"ok": 0, "wrong": 1, "failed": 2}
        timed = [item for item in database.measurements() if item.status == "ok"]
        assert all(item.median_us and item.noise is not None and item.image for item in timed)
        (found,) = database.devices().values()
        assert found.driver
        assert found.multiprocessors > 0
    again = tune(faulty, tmp_path / "a.db", str(HERE / "problems.py"))
    assert (again["known"], again["pairs"]) == (3, 0)


def test_times_are_those_of_memory(faulty: Path, tmp_path: Path) -> None:
    """128 MiB in a cold L2: no device of today moves them in less than 15 us, and none of them needs 2 ms."""
    tune(faulty, tmp_path / "a.db", str(HERE / "problems.py"), "--exhaustive")
    with open_database(tmp_path / "a.db") as database:
        large = next(number for number, one in database.problems().items() if one.name.startswith("large"))
        times = [item.median_us for item in database.measurements() if item.problem == large and item.median_us]
    assert len(times) == 12
    assert 15 < min(times) < 2000


@pytest.mark.skipif("NOJIT_TUNING_BUNDLE" not in os.environ, reason="needs a tuning bundle of the library")
@pytest.mark.parametrize("family", FAMILIES)
def test_the_library_can_be_tuned(device, tmp_path: Path, family: str) -> None:
    done = tune(Path(os.environ["NOJIT_TUNING_BUNDLE"]), tmp_path / "a.db", family, "--budget", "20s")
    assert done["pairs"] > 100
    assert not any(problem["reason"] for problem in done["problems"])
    assert sum(problem["failed"] for problem in done["problems"]) == 0
    assert sum(problem["wrong"] for problem in done["problems"]) == 0
    assert done["quick_pairs_per_s"] is None or done["quick_pairs_per_s"] >= 20
