"""``nojit tune select``: Select the few configs that matter and write tuned tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import click
from nojit.aot.cli.console import Output, counted, output_options
from nojit.aot.cli.options.tuning import (
    configs_option,
    database_argument,
    kernel_option,
    loss_option,
    manifests_option,
    measured_times_of,
    out_option,
    rules_of,
)
from nojit.aot.tune.select.measured_times import MeasuredTimes
from nojit.aot.tune.select.selection import Bounds, select
from nojit.aot.tune.select.summaries import GroupFacts, TableFacts, table_facts
from nojit.aot.tune.select.tuned_file import write_tuned

__all__ = ["command", "origin_of"]


@click.command("select")
@database_argument
@out_option
@loss_option("Percent that a problem may be slower than its best")
@configs_option("Maximum configs per kernel and group of dtypes")
@click.option("--use", default="tune", help="Use of the problems to select for; default tune.")
@kernel_option
@manifests_option
@click.option("--force", is_flag=True, help="Overwrite tables that this command did not write.")
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    database: Path,
    folder: Path,
    loss: float,
    most: int,
    use: str,
    kernels: tuple[str, ...],
    manifests: Path | None,
    force: bool,
) -> None:
    """Select the fewest configs that keep every problem near its best, and write a tuned table for each kernel and device.

    It needs no GPU. It selects a portfolio for each kernel and group of dtypes that the manifest lists as alike. If no portfolio of
    --max-configs keeps --loss, the command warns, and writes the portfolio with the lowest mean loss.
    """
    bounds = Bounds(loss / 100, most)
    found = measured_times_of(database, use, kernels)
    rules = rules_of(out, manifests, found)
    digest = sha256(database.read_bytes()).hexdigest()
    tables = []
    for measured in found:
        origin = origin_of(measured, digest) | {"loss": f"{loss:g} %", "use": use}
        selection = select(measured, rules[measured.kernel.name], bounds, origin)
        path = str(write_tuned(selection.table, folder, force=force)) if selection.table.entries else ""
        tables.append(table_facts(measured, selection, bounds, path))
    out.emit("tune select", {"loss": bounds.loss, "max_configs": most, "tables": [asdict(one) for one in tables]})
    for table in tables:
        _show(out, table)


def origin_of(measured: MeasuredTimes, digest: str) -> dict[str, str]:
    """Return the table ``origin`` of a tuned table: the tool, and where its measurements come from.

    `digest`: SHA-256 of the database file.
    """
    runs = [run for run, _ in measured.runs]
    return {
        "tool": f"nojit tune select {version('nojit')}",
        "measured": max(run.started for run in runs)[:10],
        "nojit": _joined(run.nojit for run in runs),
        "torch": _joined(run.torch for run in runs),
        "driver": _joined(device.driver for _, device in measured.runs),
        "bundle": _joined(run.bundle for run in runs),
        "database": f"sha256:{digest}",
    }


def _joined(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, words)))


def _show(out: Output, table: TableFacts) -> None:
    out.line(
        f"{table.kernel} on {table.device}: {counted(table.configs, 'config')}, {counted(table.rows, 'row')}",
        style="bold",
    )
    for group in table.groups:
        _show_group(out, group)
        _warn_of(out, table.kernel, group)
    out.line(f"  {table.path}" if table.path else "  no table: no config serves any problem")


def _show_group(out: Output, group: GroupFacts) -> None:
    if group.worst_loss is not None:
        candidates, problems = counted(group.candidates, "config"), counted(group.rows, "problem")
        out.line(f"  {group.label}: {len(group.configs)} of {candidates}, {problems}")
        rows = [
            (
                str(step.configs),
                _percent(step.worst_loss),
                _percent(step.mean_loss),
                "chosen" if step.configs == len(group.configs) else "",
            )
            for step in group.curve
        ]
        out.table((">configs", ">worst loss", ">mean loss", ""), rows, indent=4)
        for label in group.configs:
            out.line(f"    {label}")
        if group.by_costs is not None and group.by_rows is not None:
            decides = "costs" if group.by_costs > group.by_rows else "near rows"
            shares = f"costs {group.by_costs:.1%}, near rows {group.by_rows:.1%}"
            out.line(f"    of the best, on left-out problems: {shares}; nojit uses {decides}")
    if group.early:
        out.line(f"    {counted(group.early, 'time')} from an early rung, with few samples")


def _warn_of(out: Output, kernel: str, group: GroupFacts) -> None:
    """Warn about requests that could not be met. Each warning names the kernel, because standard error shows no other context."""
    of = f"{kernel}, {group.label}"
    if group.worst_loss is None:
        out.warn(f"{of}: no set of configs serves every problem")
    elif not group.kept:
        out.warn(f"{of}: --loss is not met: the worst problem loses {_percent(group.worst_loss)}")
    if not group.exact:
        out.warn(f"{of}: the search was cut short; a better set may exist")
    if group.costless:
        out.warn(f"{of}: no costs: a config has too few measurements for its terms; measure more problems")
    if group.unserved:
        out.warn(f"{of}: served by no config: {', '.join(group.unserved)}")


def _percent(share: float) -> str:
    return f"{share:.1%}"
