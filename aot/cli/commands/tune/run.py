"""``nojit tune run``: Time every config of a tuning bundle on this GPU."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import click
from nojit.aot.cli.console import PLACE, Output, counted, duration, output_options
from nojit.aot.cli.exit_codes import EXIT_FAILED
from nojit.aot.cli.progress.tuning_progress import follow_tuning
from nojit.aot.tune.measure.child_main import Setup
from nojit.aot.tune.measure.request import ProblemRun, TuneRequest, TuneRun
from nojit.aot.tune.measure.tuning_run import tune
from nojit.aot.tune.store.database import Database, open_database
from nojit.runtime.base.file_kinds import files_in
from nojit.runtime.base.wording import few
from nojit.runtime.bundle.format import SUFFIX
from nojit.runtime.errors import NojitError

__all__ = ["command"]

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_GPU = "nojit.aot.tune.measure.torch_gpu:open_gpu"


def _seconds(context: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Parse a time such as ``90s`` or ``10m``; return seconds."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h|)", value)
    if not found or not float(found[1]):
        raise click.BadParameter(f"expected a time such as 90s, 10m or 1h, got {value!r}", context, param)
    return float(found[1]) * _UNITS[found[2]]


@click.command("run")
@click.argument("bundle", type=PLACE)
@click.option(
    "--problems",
    multiple=True,
    required=True,
    metavar="P",
    help="Problems: a kernel family, a module or a file; P:USE for another use than tune; repeatable.",
)
@click.option(
    "--out",
    "database",
    type=PLACE,
    required=True,
    help="Database of measurements; created or extended.",
)
@click.option("--budget", callback=_seconds, metavar="TIME", help="Time limit: 90s, 10m or 1h; default: none.")
@click.option("--kernel", "kernels", multiple=True, metavar="K", help="Only problems of this kernel; repeatable.")
@click.option("--exhaustive", is_flag=True, help="Measure every config to the end, slow ones too.")
@click.option(
    "--seed", type=int, default=0, metavar="N", help="Seed of the order in which configs are timed; default 0."
)
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    bundle: Path,
    problems: tuple[str, ...],
    database: Path,
    budget: float | None,
    kernels: tuple[str, ...],
    exhaustive: bool,
    seed: int,
) -> int:
    """Check every config of a tuning bundle against a reference, time the correct ones, and store all results in a database.

    It needs a GPU and torch, but no compiler. Each problem starts with all configs. The tuner drops configs that cannot be the best, and times
    the others for longer. To continue after an interruption, run the command again: it skips what the database already has for this
    bundle and kind of GPU.
    """
    request = TuneRequest(Setup(_GPU, _bundle(bundle), problems, kernels), budget, exhaustive, seed)
    with _database(database) as opened, follow_tuning(out) as view:
        summary = tune(request, opened, view)
    out.emit("tune run", asdict(summary))
    _show(out, summary, database)
    return 0 if summary.known or any(problem.best_us is not None for problem in summary.problems) else EXIT_FAILED


@contextmanager
def _database(path: Path) -> Iterator[Database]:
    """Yield the open database; after a failure, delete a new database that is still empty."""
    fresh = not path.exists()
    with open_database(path, create=True) as opened:
        try:
            yield opened
        except BaseException as error:
            # an error of the cleanup must not hide the first one
            with suppress(NojitError, sqlite3.Error):
                if fresh and not opened.runs():
                    path.unlink()
            if isinstance(error, KeyboardInterrupt | SystemExit) and path.exists():
                error.add_note("results so far are stored; run the same command to continue")
            raise


def _bundle(path: Path) -> Path:
    """Return the path if it is a file, else the only bundle of the folder."""
    if not path.exists():
        raise FileNotFoundError(
            f"expected a tuning bundle, got no such path - at {path}; build one with nojit build --tuning"
        )
    if not path.is_dir():
        return path
    found = files_in(path, SUFFIX)
    if len(found) != 1:
        names = ", ".join(one.name for one in found) or "none"
        raise NojitError(
            "expected one tuning bundle, or a folder with exactly one; build one with nojit build --tuning, or name its file",
            got=names,
            where=str(path),
        )
    return found[0]


def _show(out: Output, summary: TuneRun, database: Path) -> None:
    by_kernel: dict[str, list[ProblemRun]] = {}
    for problem in summary.problems:
        by_kernel.setdefault(problem.kernel, []).append(problem)
    rows = [_row(kernel, problems) for kernel, problems in by_kernel.items()]
    if rows:
        out.table(("kernel", ">problems", ">pairs", ">wrong", ">failed", ">time"), rows)
        out.line()
    quick = summary.quick_pairs_per_s
    fast = f", {quick:,.0f} for kernels below 100 us" if quick else ""
    out.line(
        f"{summary.pairs:,} pairs of config and problem in {duration(summary.seconds)}: "
        f"{summary.pairs_per_s:,.0f} a second{fast}"
    )
    _show_rest(out, summary)
    out.line(f"in {database}")


def _show_rest(out: Output, summary: TuneRun) -> None:
    """Show the problems that were not measured."""
    if summary.known:
        out.line(f"{counted(summary.known, 'problem')} measured before")
    if summary.left:
        out.line(f"{counted(summary.left, 'problem')} left, out of time: run the same command to continue")
    if summary.missing:
        out.line(f"not in the bundle: {', '.join(summary.missing)}")
    reasons: dict[tuple[str, str], list[str]] = {}
    for problem in summary.problems:
        if problem.reason:
            reasons.setdefault((problem.kernel, problem.reason), []).append(f"{problem.name} ({problem.dtype})")
    for (kernel, reason), names in reasons.items():
        out.line(f"left out: {kernel}, {few(names, 1)}: {reason}", style="yellow")


def _row(kernel: str, problems: list[ProblemRun]) -> tuple[str, ...]:
    counts = [len(problems), *(sum(getattr(p, name) for p in problems) for name in ("configs", "wrong", "failed"))]
    return kernel, *(f"{count:,}" for count in counts), duration(sum(problem.seconds for problem in problems))
