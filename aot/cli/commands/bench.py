"""``nojit bench``: Measure launches and process starts on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click
from nojit.aot.bench import bundles
from nojit.aot.bench.benchmarks import bench_cold_start, bench_launch, save
from nojit.aot.bench.cases import CASES
from nojit.aot.bench.cold_start import WAYS, ColdStartBench
from nojit.aot.bench.launch import LaunchBench
from nojit.aot.bench.rivals import RIVALS
from nojit.aot.cli.console import PLACE, Arch, Output, output_options
from nojit.aot.cli.exit_codes import EXIT_FAILED
from nojit.aot.cli.lazy import OutputGroup

__all__ = ["command"]

F = TypeVar("F", bound=Callable[..., Any])
_STARTS = tuple(way.name for way in WAYS if way.name.startswith("torch"))
_KERNELS = "1,50"


def _numbers(known: Sequence[int] = ()) -> Callable[[click.Context, click.Parameter, str], tuple[int, ...]]:
    """Return the parser of comma-separated numbers, restricted to `known` unless that is empty."""

    def read(context: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
        words = value.split(",")
        if not all(word.isascii() and word.isdigit() and 0 < int(word) <= 1000 for word in words):
            what = f"expected comma-separated numbers from 1 to 1000, such as 1,50, got {value!r}"
            raise click.BadParameter(what, context, param)
        numbers = tuple(dict.fromkeys(map(int, words)))
        unknown = [number for number in numbers if known and number not in known]
        if unknown:
            raise click.BadParameter(f"expected some of {_spelled(known)}, got {unknown[0]}", context, param)
        return numbers

    return read


def _spelled(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _common(rivals: Sequence[str], rounds: int) -> Callable[[F], F]:
    """Return a decorator that adds the options of all measurements."""
    options = (
        click.option(
            "--bundle",
            "place",
            type=PLACE,
            help="Folder made by `nojit bench bundles`; default: build the kernels first.",
        ),
        click.option(
            "--against",
            multiple=True,
            type=click.Choice(rivals),
            metavar="NAME",
            help="Compare only with this one; repeatable.",
        ),
        click.option("--rounds", type=click.IntRange(1), default=rounds, help=f"Rounds to measure; default {rounds}."),
        click.option("--out", "folder", type=PLACE, help="Output folder for JSON and a chart (SVG)."),
    )

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


@click.group("bench", cls=OutputGroup, no_args_is_help=False)
def command() -> None:
    """Measure the cost of launches and process starts on this machine."""


@command.command("launch")
@click.option(
    "--args",
    "arguments",
    callback=_numbers(tuple(CASES)),
    default=_spelled(tuple(CASES)),
    metavar="N,N",
    help="Argument counts of the kernels to launch; default 1,4,12,30.",
)
@_common([rival.name for rival in RIVALS], 60)
@click.option("--launches", type=click.IntRange(1), default=200, help="Launches per round; default 200.")
@output_options
def launch(  # noqa: PLR0917 - click passes each by name
    out: Output,
    arguments: tuple[int, ...],
    place: Path | None,
    against: tuple[str, ...],
    rounds: int,
    folder: Path | None,
    launches: int,
) -> int:
    """Measure the host time of one launch, by nojit and others.

    All run in one process: a C loop over cuLaunchKernel (the baseline), nojit, triton, triton-autotuned, inductor, cuda.core, cupy and torch.
    One that is not installed or fails is listed with the reason. The command needs a GPU and torch. Without --bundle it builds the kernels
    first, which needs Triton.
    """
    bench = bench_launch(place, arguments, against, rounds, launches)
    out.emit("bench launch", asdict(bench))
    _show_launches(out, bench)
    _save(out, folder, bench)
    return 0 if bench.figures else EXIT_FAILED


@command.command("cold-start")
@click.option(
    "--kernels",
    "counts",
    callback=_numbers(),
    default=_KERNELS,
    metavar="N,N",
    help="Numbers of kernels to start with; default 1,50.",
)
@_common(_STARTS, 7)
@output_options
def cold_start(  # noqa: PLR0917 - click passes each by name
    out: Output,
    counts: tuple[int, ...],
    place: Path | None,
    against: tuple[str, ...],
    rounds: int,
    folder: Path | None,
) -> int:
    """Measure processes from their start to the last kernel.

    Each process loads and launches each kernel once. The baseline is a ctypes script without torch (ctypes); the others are nojit without
    torch (nojit), and processes that import torch: torch-nojit, and Triton's JIT with a filled cache (torch-triton-warm) or an empty one
    (torch-triton-cold). The command needs a GPU. Without --bundle it builds the kernels first, which needs Triton.
    """
    progress = out.note if out.verbosity > 0 else lambda _: None
    bench = bench_cold_start(place, counts, against, rounds, progress)
    out.emit("bench cold-start", asdict(bench))
    _show_starts(out, bench)
    _save(out, folder, bench)
    return 0 if bench.figures else EXIT_FAILED


@command.command("bundles")
@click.option("--arch", required=True, type=Arch(), metavar="ARCH", help="Architecture to build for, such as sm_90.")
@click.option(
    "--kernels",
    "counts",
    callback=_numbers(),
    default=_KERNELS,
    metavar="N,N",
    help="Numbers of kernels for cold starts; default 1,50.",
)
@click.option("--out", "folder", type=PLACE, required=True, help="Output folder.")
@output_options
def make_bundles(out: Output, arch: str, counts: tuple[int, ...], folder: Path) -> None:
    """Build the kernels that the other commands measure.

    Copy OUT to a machine without Triton, and pass it to `nojit bench launch` and `nojit bench cold-start` as --bundle.
    """
    bundles.build(folder, arch, counts, launch=True)
    names = [bundles.LAUNCH, *map(bundles.cold_name, counts)]
    paths = [str(bundles.find(folder, name, arch)) for name in names]
    out.emit("bench bundles", {"paths": paths})
    for path in paths:
        out.line(path)


def _show_launches(out: Output, bench: LaunchBench) -> None:
    out.facts(bench.environment.items())
    out.line(f"{bench.rounds} interleaved rounds of {bench.launches} launches each, us of one launch")
    out.line()
    rows = [
        (
            str(figure.arguments),
            figure.contender,
            f"{figure.median_us:.2f}",
            _ratio(figure.median_ratio),
            f"{figure.best_us:.2f}",
            _ratio(figure.best_ratio),
        )
        for figure in bench.figures
    ]
    out.table((">args", "contender", ">median", ">x C loop", ">best", ">x C loop "), rows)
    for missing in bench.unmeasured:
        out.line(f"not measured: {missing.contender}, {missing.arguments} arguments: {missing.reason}")


def _show_starts(out: Output, bench: ColdStartBench) -> None:
    out.facts(bench.environment.items())
    out.line(f"{bench.rounds} processes each, ms from their start to the last kernel done")
    out.line()
    rows = [
        (
            str(figure.kernels),
            figure.way,
            f"{figure.median_ms:.0f}",
            _ratio(figure.ratio),
            f"{figure.best_ms:.0f}",
            ", ".join(f"{stage.name} {stage.ms:.2f}" for stage in figure.stages),
        )
        for figure in bench.figures
    ]
    out.table((">kernels", "contender", ">median", ">x ctypes", ">best", "stages"), rows)
    for missing in bench.unmeasured:
        out.line(f"not measured: {missing.way}, {missing.kernels} kernels: {missing.reason}")


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _save(out: Output, folder: Path | None, bench: LaunchBench | ColdStartBench) -> None:
    if folder is not None:
        for path in save(folder, bench):
            out.note(f"wrote {path}")
