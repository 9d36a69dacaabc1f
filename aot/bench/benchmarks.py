"""The benchmarks from end to end: bundles, processes, results. The command line and `benchmarks/` call these functions."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nojit.aot.bench import bundles, children, cold_start
from nojit.aot.bench.charts import cold_start_chart, launch_chart
from nojit.aot.bench.cold_start import ColdStartBench, Fixture
from nojit.aot.bench.launch import LaunchBench, LaunchFigure, Unmeasured
from nojit.aot.bench.plot import svg
from nojit.aot.inspect.doctor import describe
from nojit.runtime.errors import NojitError

__all__ = ["bench_cold_start", "bench_launch", "save"]


def bench_launch(
    place: Path | None, arguments: Sequence[int], against: Sequence[str], rounds: int, launches: int
) -> LaunchBench:
    """Measure launches in a child process, which imports torch.

    Args:
        place: the benchmark bundle, or a folder with it; built on the spot if None.
        arguments: the kernels to launch, by number of arguments.
        against: names of rivals; all rivals if empty.
        rounds: number of interleaved rounds.
        launches: launches of each contender in a round.

    Raises:
        NojitError: the GPU, torch or the bundle is missing.
    """
    arch = bundles.device_arch()
    if find_spec("torch") is None:
        raise NojitError("expected torch, which creates the tensors for the launches: pip install torch")
    with _folder(place, arch, launch=True) as found:
        request: dict[str, Any] = {
            "bundle": str(bundles.find(found, bundles.LAUNCH, arch)),
            "arguments": list(arguments),
        }
        request |= {"against": list(against), "rounds": rounds, "launches": launches}
        answer = children.call("nojit.aot.bench.launch_child", request, "the measurement of launches")
    return _launch_bench(answer)


def _launch_bench(answer: dict[str, Any]) -> LaunchBench:
    figures = tuple(LaunchFigure(**figure) for figure in answer.pop("figures"))
    unmeasured = tuple(Unmeasured(**missing) for missing in answer.pop("unmeasured"))
    return LaunchBench(**answer, figures=figures, unmeasured=unmeasured)


def bench_cold_start(
    place: Path | None,
    counts: Sequence[int],
    against: Sequence[str],
    rounds: int,
    on_start: Callable[[str], None] = lambda _: None,
    *,
    check: bool = True,
) -> ColdStartBench:
    """Measure process starts.

    Args:
        place: a folder with the benchmark bundles; built on the spot if None.
        counts: numbers of kernels; each number is measured.
        against: names of contenders that use torch; all of them if empty.
        rounds: processes of each contender.
        on_start: called with a line of text before each round.
        check: whether to check the output of the last kernel.

    Raises:
        NojitError: the GPU or a bundle is missing.
    """
    arch = bundles.device_arch()
    always = ("ctypes", "nojit")
    ways = [way for way in cold_start.WAYS if not against or way.name in (*always, *against)]
    with _folder(place, arch, counts) as found, tempfile.TemporaryDirectory(prefix="nojit-bench-") as files:
        fixtures = [
            Fixture.of(bundles.find(found, bundles.cold_name(count), arch), count, Path(files, str(count)))
            for count in counts
        ]
        return cold_start.measure(fixtures, ways, rounds, describe(), check=check, on_start=on_start)


@contextmanager
def _folder(place: Path | None, arch: str, counts: Sequence[int] = (), *, launch: bool = False) -> Iterator[Path]:
    if place is not None:
        yield place
        return
    if find_spec("triton") is None:
        raise NojitError(
            "expected Triton, or --bundle with the output of `nojit bench bundles` from a machine that has Triton"
        )
    with tempfile.TemporaryDirectory(prefix="nojit-bench-") as name:
        bundles.build(Path(name), arch, counts, launch=launch)
        yield Path(name)


def save(folder: Path, bench: LaunchBench | ColdStartBench) -> tuple[Path, Path]:
    """Write a result into a folder as JSON and as an SVG chart; return both paths."""
    name, chart = (
        ("launch", launch_chart(bench)) if isinstance(bench, LaunchBench) else ("cold-start", cold_start_chart(bench))
    )
    folder.mkdir(parents=True, exist_ok=True)
    data, picture = folder / f"{name}.json", folder / f"{name}.svg"
    data.write_text(json.dumps(asdict(bench), indent=2) + "\n", encoding="utf-8")
    picture.write_text(svg(chart), encoding="utf-8")
    return data, picture
