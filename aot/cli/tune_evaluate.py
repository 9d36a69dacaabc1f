"""``nojit tune evaluate``: how near frozen tables come to the best that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from nojit.aot.cli.console import Output, counted, output_options
from nojit.aot.cli.group import EXIT_FAILED
from nojit.aot.cli.tune_common import (
    TUNED,
    database_argument,
    evidence_of,
    kernel_option,
    manifests_option,
    rules_of,
)
from nojit.aot.tune.evaluate import Drift, Evaluation, ProblemShare, evaluate, mean_share, repeat
from nojit.aot.tune.evidence import Evidence
from nojit.aot.tune.lookup import table_for
from nojit.aot.tune.select import Bounds, select
from nojit.runtime.errors import TuningError
from nojit.runtime.tuned import TunedTable, read_tuned

__all__ = ["command"]

_SHARE = click.FloatRange(0, 1)
# a drift that is shown without being asked for
_TOLD = 0.02


@dataclass(frozen=True, slots=True)
class _Repeat:
    """What to compare two runs with."""

    places: tuple[Path, Path]
    kernels: tuple[str, ...]
    manifests: Path | None
    max_drift: float | None
    """In percent."""
    bounds: Bounds


@click.command("evaluate")
@database_argument
@click.option(
    "--tables",
    "place",
    type=click.Path(path_type=Path),
    default=TUNED,
    help=f"Folder of tuned tables; default {TUNED}.",
)
@click.option("--use", default="held_out", help="Problems to look at; default held_out.")
@kernel_option
@manifests_option
@click.option("--min-geomean", type=_SHARE, help="Exit 1 if a kernel's mean share of the best is below this.")
@click.option("--min-worst", type=_SHARE, help="Exit 1 if any problem's share of the best is below this.")
@click.option(
    "--repeat",
    "again",
    metavar="DB2",
    type=click.Path(path_type=Path),
    help="Compare what DB and DB2 select, by the times of DB, instead of tables with the best.",
)
@click.option(
    "--max-drift", type=click.FloatRange(0), help="With --repeat: exit 1 if any choice is this many percent slower."
)
@click.option("--loss", type=click.FloatRange(0), default=5.0, help="With --repeat: as of `tune select`; default 5.")
@click.option(
    "--max-configs", "most", type=click.IntRange(1), default=6, help="With --repeat: as of `tune select`; default 6."
)
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    database: Path,
    place: Path,
    use: str,
    kernels: tuple[str, ...],
    manifests: Path | None,
    min_geomean: float | None,
    min_worst: float | None,
    again: Path | None,
    max_drift: float | None,
    loss: float,
    most: int,
) -> int:
    """Compare what tuned tables choose with the best that was measured, on problems that were held out.

    The problems should be measured with every config (`nojit tune run --exhaustive`). Rows are looked up as the runtime
    does. A problem that a table does not cover, or whose choice was not measured, has no share; with --min-worst that
    fails too.
    """
    if again is not None:
        request = _Repeat((database, again), kernels, manifests, max_drift, Bounds(loss / 100, most))
        return _repeat(out, request)
    found = evidence_of(database, use, kernels)
    rules = rules_of(manifests, found)
    tables = _tables(place)
    results = [
        evaluate(evidence, _table_for(tables, evidence, place), rules[evidence.kernel.name]) for evidence in found
    ]
    shares = [one.share for result in results for one in result.problems if one.share is not None]
    mean, worst = mean_share(shares), min(shares, default=None)
    kept = all(_kept(result, min_geomean, min_worst) for result in results)
    document = {"use": use, "mean_share": mean, "worst_share": worst, "kept": kept}
    out.emit("tune evaluate", {**document, "kernels": [asdict(result) for result in results]})
    _show(out, results)
    return 0 if kept else EXIT_FAILED


def _tables(place: Path) -> list[TunedTable]:
    paths = sorted(place.glob("*.toml")) if place.is_dir() else [place]
    if not paths:
        raise TuningError("expected a folder with tuned tables", got="none", where=str(place))
    return [read_tuned(path) for path in paths]


def _table_for(tables: Sequence[TunedTable], evidence: Evidence, place: Path) -> TunedTable:
    table = table_for(tables, evidence.kernel.name, evidence.device)
    if table is None:
        got = ", ".join(sorted({f"{one.kernel} ({one.device.arch})" for one in tables}))
        what = f"expected a tuned table of kernel {evidence.kernel.name} for {evidence.device.arch}"
        raise TuningError(what, got=got, where=str(place))
    return table


def _kept(result: Evaluation, mean: float | None, worst: float | None) -> bool:
    unknown = any(one.share is None for one in result.problems)
    return not (
        (mean is not None and (result.mean_share or 0.0) < mean)
        or (worst is not None and (unknown or (result.worst_share or 0.0) < worst))
    )


def _show(out: Output, results: Sequence[Evaluation]) -> None:
    rows = [
        (
            result.kernel,
            result.device,
            str(len(result.problems)),
            _share(result.mean_share),
            _share(result.worst_share),
            str(sum(one.share is None for one in result.problems)),
        )
        for result in results
    ]
    out.table(("kernel", "device", ">problems", ">mean", ">worst", ">unknown"), rows)
    for result in results:
        shown = result.problems if out.verbosity > 0 else [one for one in result.problems if (one.share or 0) < 0.95]
        if shown:
            out.line()
            out.line(f"{result.kernel}:" if out.verbosity > 0 else f"{result.kernel}, below 0.95:", style="bold")
            out.table((">share", "problem", "dtype", "status", "chosen", "best"), map(_row, shown), indent=2)


def _row(one: ProblemShare) -> tuple[str, ...]:
    chosen = one.config + (f" ({one.us:.1f} us)" if one.us is not None else "")
    best = one.best + (f" ({one.best_us:.1f} us)" if one.best_us is not None else "")
    return _share(one.share), one.problem, one.dtype, one.status, chosen, best


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _repeat(out: Output, request: _Repeat) -> int:
    first, second = (evidence_of(place, "tune", request.kernels) for place in request.places)
    rules = rules_of(request.manifests, first)
    others = {(one.kernel.name, one.device): one for one in second}
    drifts: list[Drift] = []
    for evidence in first:
        other = others.get((evidence.kernel.name, evidence.device))
        if other is None:
            what = f"expected measurements of {evidence.kernel.name} on {evidence.device.name} in both"
            raise TuningError(what, got="none", where=str(request.places[1]))
        known = rules[evidence.kernel.name]
        selections = [select(one, known, request.bounds) for one in (evidence, other)]
        drifts += repeat(evidence, selections[0], selections[1], known)
    sizes = [abs(one.drift) for one in drifts if one.drift is not None]
    most = request.max_drift
    kept = most is None or (len(sizes) == len(drifts) and max(sizes, default=0.0) <= most / 100)
    worst = max(sizes, default=None)
    out.emit("tune evaluate", {"worst_drift": worst, "kept": kept, "drifts": [asdict(one) for one in drifts]})
    _show_drifts(out, drifts, worst)
    return 0 if kept else EXIT_FAILED


def _show_drifts(out: Output, drifts: Sequence[Drift], worst: float | None) -> None:
    spelled = "-" if worst is None else f"{worst:.1%}"
    out.line(f"{counted(len(drifts), 'problem')}, the second's choice differs by {spelled} at most")
    shown = [one for one in drifts if out.verbosity > 0 or one.drift is None or abs(one.drift) > _TOLD]
    if shown:
        rows = [
            (
                "-" if one.drift is None else f"{one.drift:+.1%}",
                one.kernel,
                one.problem,
                one.dtype,
                one.first,
                one.second,
            )
            for one in shown
        ]
        out.table((">drift", "kernel", "problem", "dtype", "first", "second"), rows)
