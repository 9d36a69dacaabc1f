"""Measure what a process start costs, up to the last kernel done: every way as whole processes, in interleaved rounds."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import environ
from pathlib import Path

from nojit.aot.bench.bundles import cold_source
from nojit.runtime.bundle import BundleFile

__all__ = ["REFERENCE", "WAYS", "ColdStartBench", "Fixture", "StartFigure", "StartStage", "Unstarted", "Way", "measure"]

_SCRIPT = Path(__file__).with_name("start.py")
# what a kernel's own number adds to in its result: see the source in `bundles`
_OFFSET = 0.5


@dataclass(frozen=True, slots=True)
class StartStage:
    """One stage of a start."""

    name: str
    ms: float
    """Median over the processes, in milliseconds."""


@dataclass(frozen=True, slots=True)
class StartFigure:
    """Cost of a start by one contender."""

    way: str
    kernels: int
    """Kernels that are loaded and launched once each."""
    median_ms: float
    """From the creation of the process to the last kernel done, in milliseconds."""
    best_ms: float
    worst_ms: float
    ratio: float | None
    """The median relative to the ctypes script; None if that was not measured."""
    stages: tuple[StartStage, ...]
    """In order; the first starts with the process."""


@dataclass(frozen=True, slots=True)
class Unstarted:
    """A contender that could not be measured."""

    way: str
    kernels: int
    reason: str


@dataclass(frozen=True, slots=True)
class ColdStartBench:
    """Results of ``nojit bench cold-start``."""

    environment: dict[str, str]
    """GPU, driver, and versions of the contenders."""
    rounds: int
    """Processes per contender."""
    figures: tuple[StartFigure, ...]
    unmeasured: tuple[Unstarted, ...]


@dataclass(frozen=True, slots=True)
class Fixture:
    """The files that so many kernels are started from."""

    kernels: int
    bundle: Path
    images: tuple[str, ...]
    """For the ctypes script: CUBIN:SYMBOL:THREADS:SHARED_BYTES:SCRATCH_PARAMS each."""
    source: Path
    """The kernels in Triton."""
    warm_cache: Path
    """Triton's cache, kept."""

    @staticmethod
    def of(bundle: Path, kernels: int, folder: Path) -> Fixture:
        """Take the images out of a bundle, and write the source that it was built of."""
        folder.mkdir(parents=True)
        with BundleFile(bundle) as file:
            images = tuple(_unpack(file, f"cold_{number}", folder) for number in range(kernels))
        return Fixture(kernels, bundle, images, cold_source(folder, kernels), folder / "warm")


def _unpack(file: BundleFile, kernel: str, folder: Path) -> str:
    table = file.table(kernel)
    launch = table.launches[table.columns["launch"][0]]
    path = folder / f"{kernel}.cubin"
    path.write_bytes(file.image(kernel, table.columns["image"][0]))
    # x, out and n come first
    return f"{path}:{launch.symbol}:{32 * launch.num_warps}:{launch.shared_bytes}:{len(launch.layout) - 3}"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to start."""

    name: str
    what: str
    """In a few words."""
    script: str
    """What `start.py` calls it."""
    words: Callable[[Fixture], Sequence[str]]
    """What `start.py` is told beside."""
    cache: str = ""
    """Triton's cache: ``warm``, ``cold``, or empty where Triton has no part."""


def _bundle_words(fixture: Fixture) -> Sequence[str]:
    return str(fixture.bundle), "preload" if fixture.kernels > 1 else "lazy"


def _source_words(fixture: Fixture) -> Sequence[str]:
    return str(fixture.source), str(fixture.kernels)


REFERENCE = Way("ctypes", "a ctypes script that loads cubins", "ctypes", lambda fixture: fixture.images)
WAYS = (
    REFERENCE,
    Way("nojit", "nojit, without torch", "nojit", _bundle_words),
    Way("torch-nojit", "torch and nojit", "torch-nojit", _bundle_words),
    Way("torch-triton-warm", "torch and Triton, warm cache", "torch-triton", _source_words, "warm"),
    Way("torch-triton-cold", "torch and Triton, cold cache", "torch-triton", _source_words, "cold"),
)


class _StartError(Exception):
    """A start failed."""


def measure(
    fixtures: Sequence[Fixture],
    ways: Sequence[Way],
    rounds: int,
    environment: Mapping[str, str],
    *,
    check: bool = True,
    on_start: Callable[[str], None] = lambda _: None,
) -> ColdStartBench:
    """Start every way with every fixture, once to warm the page cache and then `rounds` times.

    Args:
        fixtures: how many kernels, and where they are.
        ways: in the order of the result.
        rounds: processes of each way.
        environment: what to tell of the machine.
        check: whether the last kernel must have written what it is to write.
        on_start: told of each round.
    """
    runs: dict[tuple[Way, int], list[dict[str, float]]] = {}
    missing: list[Unstarted] = []
    for number in range(rounds + 1):
        on_start(f"round {number} of {rounds}" if number else "first, to warm the page cache")
        for fixture in fixtures:
            for way in ways:
                known = runs.setdefault((way, fixture.kernels), [])
                if number and not known:
                    continue
                try:
                    known.append(_start(way, fixture, check=check))
                except _StartError as error:
                    runs[way, fixture.kernels] = []
                    missing.append(Unstarted(way.name, fixture.kernels, str(error)))
    # the first only warms
    counted = {key: starts[1:] for key, starts in runs.items() if starts}
    return ColdStartBench(dict(environment), rounds, tuple(_figures(counted)), tuple(missing))


def _start(way: Way, fixture: Fixture, *, check: bool) -> dict[str, float]:
    """Start one process; return the ms of each stage."""
    with tempfile.TemporaryDirectory(prefix="nojit-bench-") as folder:
        result = Path(folder, "result")
        command = [sys.executable, str(_SCRIPT), way.script, str(result), *way.words(fixture)]
        cache = str(fixture.warm_cache if way.cache == "warm" else Path(folder, "cold"))
        started = time.monotonic_ns()
        # modules of a wheel are compiled when it is installed, those here by the start that only warms
        environment = {name: value for name, value in environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["TRITON_CACHE_DIR"] = cache
        ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        if ended.returncode:
            raise _StartError((ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1][:300])
        pairs = [line.split("\t") for line in result.read_text(encoding="utf-8").splitlines()]
    marks = {stage: float(clock) for stage, clock in pairs}
    value = marks.pop("value")
    if check and value != fixture.kernels - 1 + _OFFSET:
        raise _StartError(f"the last kernel wrote {value}")
    clocks = [started, *marks.values()]
    return {stage: (clocks[place + 1] - clocks[place]) / 1e6 for place, stage in enumerate(marks)}


def _figures(runs: Mapping[tuple[Way, int], Sequence[dict[str, float]]]) -> list[StartFigure]:
    totals = {key: [sum(start.values()) for start in starts] for key, starts in runs.items()}
    figures = []
    for (way, kernels), ms in totals.items():
        median, reference = statistics.median(ms), totals.get((REFERENCE, kernels))
        starts = runs[way, kernels]
        stages = tuple(StartStage(name, statistics.median(start[name] for start in starts)) for name in starts[0])
        ratio = median / statistics.median(reference) if reference else None
        figures.append(StartFigure(way.name, kernels, median, min(ms), max(ms), ratio, stages))
    return figures
