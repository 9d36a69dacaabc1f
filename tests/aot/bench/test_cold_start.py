"""Cold starts as whole processes, against the fake driver: it computes nothing, so results are not looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
from nojit.aot.bench import benchmarks
from nojit.aot.bench.bundles import cold_name
from nojit.aot.bench.cold_start import REFERENCE, WAYS, Fixture, Way, measure
from nojit.runtime.errors import NojitError

from tests.aot.bench.conftest import cold_kernel
from tests.fakecuda import FakeCuda
from tests.support.bundles import make_bundle

NOJIT = WAYS[1]


@pytest.fixture
def folder(tmp_path: Path, fakecuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the bundles of 1 and of 3 kernels; processes find the fake driver."""
    for name, value in fakecuda.environment(90).items():
        monkeypatch.setenv(name, value)
    for kernels in (1, 3):
        path = tmp_path / f"{cold_name(kernels)}-1-sm_90.nojit"
        make_bundle(path, *(cold_kernel(number) for number in range(kernels)))
    return tmp_path


def fixture(folder: Path, kernels: int) -> Fixture:
    return Fixture.of(folder / f"{cold_name(kernels)}-1-sm_90.nojit", kernels, folder / f"files-{kernels}")


def test_every_stage_is_told_in_order(folder: Path) -> None:
    bench = benchmarks.bench_cold_start(folder, (1, 3), ("none",), 2, check=False)
    assert bench.unmeasured == ()
    assert [(figure.way, figure.kernels) for figure in bench.figures] == [
        ("ctypes", 1), ("nojit", 1), ("ctypes", 3), ("nojit", 3)]  # fmt: skip
    stages = {(one.way, one.kernels): [stage.name for stage in one.stages] for one in bench.figures}
    assert stages["ctypes", 1] == ["start", "import", "context", "load", "launch", "done"]
    assert stages["nojit", 1] == ["start", "import", "context", "import nojit", "open", "launch", "done"]
    assert stages["nojit", 3] == ["start", "import", "context", "import nojit", "open", "preload", "launch", "done"]
    for figure in bench.figures:
        assert 0 < figure.best_ms <= figure.median_ms <= figure.worst_ms
        assert all(stage.ms > 0 for stage in figure.stages)
        assert (figure.ratio == 1) == (figure.way == "ctypes")
    assert bench.environment["gpu"] == "Fake GPU sm_90, sm_90"


def test_each_round_starts_each_way_after_one_that_only_warms(folder: Path) -> None:
    said: list[str] = []
    bench = measure([fixture(folder, 1)], [REFERENCE], 2, {}, check=False, on_start=said.append)
    assert said == ["first, to warm the page cache", "round 1 of 2", "round 2 of 2"]
    assert (bench.rounds, len(bench.figures)) == (2, 1)


def test_a_kernel_that_computes_something_else_is_no_start(folder: Path) -> None:
    bench = measure([fixture(folder, 3)], [REFERENCE, NOJIT], 1, {})
    assert bench.figures == ()
    assert [(one.way, one.kernels, one.reason) for one in bench.unmeasured] == [
        ("ctypes", 3, "the last kernel wrote 0.0"),
        ("nojit", 3, "the last kernel wrote 0.0"),
    ]


def test_a_way_that_fails_is_listed_with_its_last_words(folder: Path) -> None:
    broken = Way("broken", "", "nojit", lambda _: ("absent.nojit", "lazy"))
    bench = measure([fixture(folder, 1)], [REFERENCE, broken], 1, {}, check=False)
    assert [figure.way for figure in bench.figures] == ["ctypes"]
    (missing,) = bench.unmeasured
    assert missing.way == "broken"
    assert "No such file or directory: 'absent.nojit'" in missing.reason


def test_images_are_taken_out_of_the_bundle_with_their_launch_facts(folder: Path) -> None:
    made = fixture(folder, 3)
    path, symbol, *facts = made.images[2].split(":")
    assert (symbol, facts) == ("cold_2", ["128", "0", "2"])
    assert Path(path).read_bytes().startswith(b"\x7fELF")
    assert made.source.read_text().count("@triton.jit") == 3


def test_without_a_device_nothing_is_measured(folder: Path, fakecuda: FakeCuda) -> None:
    fakecuda.set_devices()
    with pytest.raises(NojitError, match="expected a GPU to measure on, got no device"):
        benchmarks.bench_cold_start(folder, (1,), (), 1)
