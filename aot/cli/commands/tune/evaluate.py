"""``nojit tune evaluate``: Compare the configs of tuned tables with the best."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click
from nojit.aot.cli.console import PLACE, Output, counted, given_option, output_options
from nojit.aot.cli.exit_codes import EXIT_FAILED
from nojit.aot.cli.options.tuning import (
    PERCENT,
    SHARE,
    TUNED,
    configs_option,
    database_argument,
    kernel_option,
    loss_option,
    manifests_option,
    measured_times_of,
    read_tables,
    rules_of,
    tables_option,
)
from nojit.aot.tune.select.evaluate import Drift, Evaluation, ProblemShare, evaluate, mean_share, repeat
from nojit.aot.tune.select.lookup import table_for
from nojit.aot.tune.select.measured_times import MeasuredTimes
from nojit.aot.tune.select.selection import Bounds, select
from nojit.runtime.errors import TuningError
from nojit.runtime.target import by_arch
from nojit.runtime.tuning.tuned_tables import TunedTable

__all__ = ["command"]

# smallest drift to show without -v
_DRIFT_SHOWN = 0.02
# params of the options that affect only a comparison of two runs, or only one of tables with the best
_OF_REPEATS: Final = ("max_drift", "loss", "most")
_OF_TABLES: Final = ("tables", "use", "min_geomean", "min_worst")


@dataclass(frozen=True, slots=True)
class _Repeat:
    """Inputs and limits of `--repeat`, which compares two runs."""

    places: tuple[Path, Path]
    kernels: tuple[str, ...]
    manifests: Path | None
    max_drift: float | None
    """Largest allowed drift in percent; None without a limit."""
    bounds: Bounds


@click.command("evaluate")
@database_argument
@tables_option(f"Tuned table, or a folder of them; default {TUNED}.")
@click.option("--use", default="held_out", help="Use of the problems to evaluate; default held_out.")
@kernel_option
@manifests_option
@click.option(
    "--min-geomean", type=SHARE, metavar="SHARE", help="Exit with 1 if a kernel's mean share of the best is lower."
)
@click.option(
    "--min-worst", type=SHARE, metavar="SHARE", help="Exit with 1 if any problem's share of the best is lower."
)
@click.option(
    "--repeat",
    "again",
    metavar="DB2",
    type=PLACE,
    help="Compare the selections of DB and DB2, by the times of DB, instead of tables with the best.",
)
@click.option(
    "--max-drift",
    type=PERCENT,
    metavar="PERCENT",
    help="With --repeat: exit with 1 if a selection is this many percent slower or faster.",
)
@loss_option("With --repeat: as in `tune select`")
@configs_option("With --repeat: as in `tune select`")
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    database: Path,
    tables: Path | None,
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
    """Compare the configs that tuned tables select with the best measured ones, on held-out problems.

    Measure the problems with every config first: `nojit tune run --exhaustive`. Tables are searched as at run time. A problem that no table
    covers, or whose selected config was not measured, has no share and fails --min-worst.
    """
    _check_options(repeats=again is not None)
    if again is not None:
        request = _Repeat((database, again), kernels, manifests, max_drift, Bounds(loss / 100, most))
        return _repeat(out, request)
    found = measured_times_of(database, use, kernels)
    rules = rules_of(out, manifests, found)
    place = tables or TUNED
    read = read_tables(place)
    results = [evaluate(measured, _table_for(read, measured, place), rules[measured.kernel.name]) for measured in found]
    shares = [one.share for result in results for one in result.problems if one.share is not None]
    mean, worst = mean_share(shares), min(shares, default=None)
    kept = all(_kept(result, min_geomean, min_worst) for result in results)
    document = {"use": use, "mean_share": mean, "worst_share": worst, "kept": kept}
    out.emit("tune evaluate", {**document, "kernels": [asdict(result) for result in results]})
    _show(out, results)
    return 0 if kept else EXIT_FAILED


def _check_options(*, repeats: bool) -> None:
    """Refuse options that the chosen mode ignores.

    `repeats`: whether it compares two runs.
    """
    ignored = given_option(_OF_TABLES if repeats else _OF_REPEATS)
    if ignored is not None:
        raise click.UsageError(f"expected {ignored} {'without' if repeats else 'with'} --repeat: it has no effect here")


def _table_for(tables: Sequence[TunedTable], measured: MeasuredTimes, place: Path) -> TunedTable:
    table = table_for(tables, measured.kernel.name, measured.device)
    if table is None:
        got = ", ".join(sorted({f"{one.kernel} ({one.device.arch})" for one in tables}, key=by_arch))
        what = f"expected a tuned table of kernel {measured.kernel.name} for {measured.device.arch}"
        raise TuningError(what, got=f"{got}; write one with nojit tune select", where=str(place))
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
            labels = _Labels(label for one in result.problems for label in (one.config, one.best))
            bar = "" if out.verbosity > 0 else ", below 0.95"
            out.line(f"{result.kernel}{bar}{labels.shared}:", style="bold")
            lines = [_row(one, labels) for one in shown]
            out.table((">share", "problem", "dtype", "status", "chosen", "best"), lines, indent=2)


class _Labels:
    """Short labels of configs, without the settings that all of them share.

    Attributes:
        shared: the shared settings as text for a title; empty without any.
    """

    def __init__(self, labels: Iterable[str]) -> None:
        different = {label: _settings(label) for label in labels if label}
        common = set.intersection(*map(set, different.values())) if len(different) > 1 else set()
        self._short = {label: " ".join(one for one in words if one not in common) for label, words in different.items()}
        self.shared = f", all with {' '.join(sorted(common))}" if common else ""

    def __getitem__(self, label: str) -> str:
        return self._short.get(label, "")


def _settings(label: str) -> list[str]:
    # values may contain spaces; the expression after `requires` stays whole
    settings, requires, rule = label.partition(" requires ")
    return [*re.split(r" (?=\w+=)", settings), *([f"requires {rule}"] if requires else [])]


def _row(one: ProblemShare, labels: _Labels) -> tuple[str, ...]:
    chosen = labels[one.config] + (f" ({one.us:.1f} us)" if one.us is not None else "")
    best = labels[one.best] + (f" ({one.best_us:.1f} us)" if one.best_us is not None else "")
    return _share(one.share), one.problem, one.dtype, one.status, chosen, best


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _repeat(out: Output, request: _Repeat) -> int:
    first, second = (
        {(one.kernel.name, one.device): one for one in measured_times_of(place, "tune", request.kernels)}
        for place in request.places
    )
    both = [known for known in first if known in second]
    if not both:
        raise TuningError(
            "expected a kernel that both databases measured on the same kind of device; run nojit tune run there again",
            got="none",
            where=str(request.places[1]),
        )
    rules = rules_of(out, request.manifests, tuple(first.values()))
    drifts: list[Drift] = []
    for known in both:
        rule = rules[known[0]]
        selections = [select(one[known], rule, request.bounds) for one in (first, second)]
        drifts += repeat(first[known], selections[0], selections[1], rule)
    worst = max((abs(one.drift) for one in drifts if one.drift is not None), default=None)
    kept = _is_steady(drifts, request.max_drift)
    left_out = sorted({kernel for kernel, device in first.keys() ^ second.keys()})
    document = {"worst_drift": worst, "kept": kept, "left_out": left_out}
    out.emit("tune evaluate", {**document, "drifts": [asdict(one) for one in drifts]})
    _show_drifts(out, drifts, worst)
    if left_out:
        out.warn(f"skipped, only one database has them: {', '.join(left_out)}")
    return 0 if kept else EXIT_FAILED


def _is_steady(drifts: Sequence[Drift], most: float | None) -> bool:
    return most is None or all(one.drift is not None and abs(one.drift) <= most / 100 for one in drifts)


def _show_drifts(out: Output, drifts: Sequence[Drift], worst: float | None) -> None:
    spelled = "-" if worst is None else f"{worst:.1%}"
    out.line(f"{counted(len(drifts), 'problem')}, the second run's selection differs by at most {spelled}")
    for kernel in dict.fromkeys(one.kernel for one in drifts):
        mine = [one for one in drifts if one.kernel == kernel]
        shown = [one for one in mine if out.verbosity > 0 or one.drift is None or abs(one.drift) > _DRIFT_SHOWN]
        if shown:
            labels = _Labels(label for one in mine for label in (one.first, one.second))
            bar = "" if out.verbosity > 0 else f", more than {_DRIFT_SHOWN:.0%} apart"
            out.line()
            out.line(f"{kernel}{bar}{labels.shared}:", style="bold")
            rows = [_drift_row(one, labels) for one in shown]
            out.table((">drift", "problem", "dtype", "first", "second"), rows, indent=2)


def _drift_row(one: Drift, labels: _Labels) -> tuple[str, ...]:
    drift = "-" if one.drift is None else f"{one.drift:+.1%}"
    return drift, one.problem, one.dtype, labels[one.first], labels[one.second]
