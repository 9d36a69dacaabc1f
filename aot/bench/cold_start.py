"""Time of process starts, from creation of the process to completion of its last kernel. Contenders run in interleaved rounds."""

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
from nojit.runtime.bundle.file import BundleFile

__all__ = ["REFERENCE", "WAYS", "ColdStartBench", "Fixture", "StartFigure", "StartStage", "Unstarted", "Way", "measure"]

_SCRIPT = Path(__file__).with_name("start.py")
# the kernel with number N writes N + 0.5: see the source in `bundles`
_OFFSET = 0.5


@dataclass(frozen=True, slots=True)
class StartStage:
    """Duration of one stage of a process start, such as the import of torch."""

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
    """The files of a process start with a given number of kernels."""

    kernels: int
    bundle: Path
    images: tuple[str, ...]
    """Arguments of the ctypes script, each CUBIN:SYMBOL:THREADS:SHARED_BYTES:SCRATCH_PARAMS."""
    source: Path
    """Triton source of the kernels."""
    warm_cache: Path
    """Folder of Triton's warm cache."""

    @staticmethod
    def of(bundle: Path, kernels: int, folder: Path) -> Fixture:
        """Return a fixture in a new `folder`: the bundle's images as cubin files, and the Triton source of its kernels."""
        folder.mkdir(parents=True)
        with BundleFile(bundle) as file:
            images = tuple(_unpack(file, f"cold_{number}", folder) for number in range(kernels))
        return Fixture(kernels, bundle, images, cold_source(folder, kernels), folder / "warm")


def _unpack(file: BundleFile, kernel: str, folder: Path) -> str:
    table = file.table(kernel)
    launch = table.launches[table.columns["launch"][0]]
    path = folder / f"{kernel}.cubin"
    path.write_bytes(file.image(kernel, table.columns["image"][0]))
    # params after x, out and n are scratch
    return f"{path}:{launch.symbol}:{32 * launch.num_warps}:{launch.shared_bytes}:{len(launch.layout) - 3}"


@dataclass(frozen=True, slots=True)
class Way:
    """One contender: software that starts a process and launches kernels."""

    name: str
    what: str
    """The contender in a few words."""
    script: str
    """The contender's name in `start.py`."""
    words: Callable[[Fixture], Sequence[str]]
    """Further arguments of `start.py`."""
    cache: str = ""
    """State of Triton's cache: ``warm``, ``cold``, or empty if Triton is not used."""


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
    """A process start failed."""


def measure(
    fixtures: Sequence[Fixture],
    ways: Sequence[Way],
    rounds: int,
    environment: Mapping[str, str],
    *,
    check: bool = True,
    on_start: Callable[[str], None] = lambda _: None,
) -> ColdStartBench:
    """Measure every contender with every fixture: one start to warm the page cache, then `rounds` starts.

    Args:
        fixtures: files of the kernels, one fixture for each number of kernels.
        ways: the contenders, in the order of the result.
        rounds: processes of each contender.
        environment: facts of the machine, for the result.
        check: whether to check the output of the last kernel.
        on_start: called with a line of text before each round.
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
    # the first start only warms the page cache
    counted = {key: starts[1:] for key, starts in runs.items() if starts}
    return ColdStartBench(dict(environment), rounds, tuple(_figures(counted)), tuple(missing))


def _start(way: Way, fixture: Fixture, *, check: bool) -> dict[str, float]:
    """Start one process; return the milliseconds of each stage.

    `way`: the process to start.
    """
    with tempfile.TemporaryDirectory(prefix="nojit-bench-") as folder:
        result = Path(folder, "result")
        command = [sys.executable, str(_SCRIPT), way.script, str(result), *way.words(fixture)]
        cache = str(fixture.warm_cache if way.cache == "warm" else Path(folder, "cold"))
        started = time.monotonic_ns()
        # installers compile the modules of a wheel; here the warm-up start writes the bytecode
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
