"""The benchmarks run on a device: every way of nojit's is measured, and what each launch writes is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from nojit.aot.bench import bundles
from nojit.aot.bench.benchmarks import bench_cold_start, bench_launch


@pytest.fixture(scope="module")
def built(device, tmp_path_factory) -> Path:
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("bench")
    bundles.build(folder, bundles.device_arch(), (1, 3), launch=True)
    return folder


def test_nojit_and_the_c_loop_are_measured_at_every_size(built: Path) -> None:
    bench = bench_launch(built, (1, 4, 12, 30), (), 2, 20)
    measured = {(figure.contender, figure.arguments) for figure in bench.figures}
    missing = {(one.contender, one.arguments): one.reason for one in bench.unmeasured}
    for arguments in (1, 4, 12, 30):
        for contender in ("c-loop", "nojit", "nojit-own-grid", "nojit-bound", "triton", "triton-autotuned"):
            assert (contender, arguments) in measured, missing
    assert ("torch", 4) in measured, missing


def test_every_start_ends_with_the_right_result(built: Path) -> None:
    bench = bench_cold_start(built, (1, 3), (), 1)
    assert bench.unmeasured == ()
    assert len(bench.figures) == 10
