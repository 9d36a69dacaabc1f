"""Options and readers that the commands of ``nojit tune`` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from nojit.aot.cli.console import PLACE, Number, Output
from nojit.aot.tune.select.measured_times import MeasuredTimes, collect
from nojit.aot.tune.select.rules import TuningRules
from nojit.aot.tune.store.database import Database, open_database
from nojit.runtime.base.file_kinds import files_in
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import TuningError
from nojit.runtime.tuning.tuned_tables import TunedTable, read_tuned

__all__ = [
    "PERCENT",
    "SHARE",
    "TUNED",
    "configs_option",
    "database_argument",
    "kernel_option",
    "loss_option",
    "manifests_option",
    "measured_times_by_use",
    "measured_times_of",
    "out_option",
    "read_tables",
    "rules_of",
    "tables_option",
]

F = TypeVar("F", bound=Callable[..., Any])
_MANIFESTS = Path("manifests")
TUNED = _MANIFESTS / "tuned"
PERCENT = Number(0)
SHARE = Number(0, 1)


def database_argument(function: F) -> F:
    """Add the argument for the database of measurements."""
    return click.argument("database", metavar="DB", type=PLACE)(function)


def kernel_option(function: F) -> F:
    """Add the option for kernels."""
    return click.option("--kernel", "kernels", multiple=True, metavar="K", help="Only this kernel; repeatable.")(
        function
    )


def manifests_option(function: F) -> F:
    """Add the option for manifests, whose `alike` groups measurements."""
    words = "Folder of manifests, for `alike` and `bucket`; default manifests/ if it contains any."
    return click.option("--manifests", type=PLACE, help=words)(function)


def loss_option(about: str) -> Callable[[F], F]:
    """Add the option for the loss of portfolios."""
    return click.option("--loss", type=PERCENT, metavar="PERCENT", default=5.0, help=f"{about}; default 5.")


def configs_option(about: str) -> Callable[[F], F]:
    """Add the option for the size of portfolios."""
    words = f"{about}; default 6."
    return click.option("--max-configs", "most", type=click.IntRange(1), metavar="N", default=6, help=words)


def out_option(function: F) -> F:
    """Add the option for the output folder of tuned tables."""
    words = f"Output folder of the tuned tables; default {TUNED}."
    return click.option("--out", "folder", type=PLACE, default=TUNED, help=words)(function)


def tables_option(about: str) -> Callable[[F], F]:
    """Add the option for tuned tables to read."""
    return click.option("--tables", "tables", type=PLACE, metavar="PATH", help=about)


def read_tables(place: Path) -> list[TunedTable]:
    """Return the tuned table of a file, or all tables of a folder.

    Raises:
        TuningError: a table is invalid, or the folder has none.
        OSError: the path does not exist or cannot be read.
    """
    if not place.exists():
        raise FileNotFoundError(
            f"expected a tuned table or a folder of them, got no such path - at {place}; write tables with nojit tune select"
        )
    paths = files_in(place, ".toml") if place.is_dir() else [place]
    if not paths:
        raise TuningError(
            "expected a folder with tuned tables", got="none; write them with nojit tune select", where=str(place)
        )
    return [read_tuned(path) for path in paths]


def measured_times_of(database: Path, use: str, kernels: Sequence[str]) -> tuple[MeasuredTimes, ...]:
    """Return the measurements of problems of one use.

    `use`: purpose of the problems, such as ``tune`` or ``held_out``; `kernels`: only these, or all if empty.

    Raises:
        TuningError: there are none, or a requested kernel was never measured.
        OSError: the file does not exist.
        NojitError: the file is not a database of measurements.
    """
    with open_database(database) as opened:
        _check_kernels(opened, kernels)
        found = collect(opened, use, kernels)
    if not found:
        of = f" of {', '.join(kernels)}" if kernels else ""
        what = f"expected measurements of problems for {use!r}{of}; measure them with nojit tune run"
        raise TuningError(what, got="none", where=str(database))
    return found


def measured_times_by_use(database: Path, kernels: Sequence[str]) -> dict[str, tuple[MeasuredTimes, ...]]:
    """Return the measurements of all problems of other uses (purposes) than ``tune``, by use.

    `kernels`: only these, or all if empty.

    Raises:
        OSError: the file does not exist.
        NojitError: the file is not a database of measurements.
    """
    with open_database(database) as opened:
        uses = {problem.use for problem in opened.problems().values()} - {"tune"}
        return {use: collect(opened, use, kernels) for use in sorted(uses)}


def _check_kernels(database: Database, kernels: Sequence[str]) -> None:
    known = sorted(kernel.name for kernel in database.kernels().values())
    for name in kernels:
        if name not in known:
            what = f"expected a measured kernel: {', '.join(known) or 'none yet; measure with nojit tune run'}"
            raise TuningError(what, got=f"{name!r}{did_you_mean(name, known)}", where=str(database.path))


def rules_of(out: Output, manifests: Path | None, found: Sequence[MeasuredTimes]) -> Mapping[str, TuningRules]:
    """Return the tuning rules of every measured kernel, from its manifest or else from the database.

    Raises:
        ManifestError: a manifest is invalid, or `manifests` is a folder without manifests.
    """
    known: Mapping[str, TuningRules] = {}
    # without manifests, the default folder can still hold tuned tables
    if manifests is not None or any(_MANIFESTS.glob("*.toml")):
        from nojit.aot.tune.select.manifest_rules import read_rules  # needs the extra `build`

        known = read_rules(manifests or _MANIFESTS)
    kernels = {measured.kernel.name: measured.kernel for measured in found}
    if strangers := sorted(kernels.keys() - known.keys()):
        out.note(
            f"no manifest of {', '.join(strangers)}: dtypes are tuned separately, with default buckets; name the folder of manifests with --manifests"
        )
    return {name: known.get(name, TuningRules(kernel.alike)) for name, kernel in kernels.items()}
