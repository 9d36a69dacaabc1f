"""``nojit tune report``: Write an HTML page about tunables and shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from nojit.aot.base.files import write_file
from nojit.aot.cli.console import PLACE, Output, counted, output_options
from nojit.aot.cli.options.tuning import (
    TUNED,
    configs_option,
    database_argument,
    kernel_option,
    loss_option,
    manifests_option,
    measured_times_by_use,
    measured_times_of,
    read_tables,
    rules_of,
    tables_option,
)
from nojit.aot.tune.select.evaluate import evaluate
from nojit.aot.tune.select.lookup import table_for
from nojit.aot.tune.select.measured_times import MeasuredTimes
from nojit.aot.tune.select.rules import TuningRules
from nojit.aot.tune.select.selection import Bounds
from nojit.aot.tune.select.summaries import QualityFacts, quality_facts

__all__ = ["command"]


@click.command("report")
@database_argument
@click.option("--out", "place", type=PLACE, required=True, help="HTML page to write.")
@click.option(
    "--markdown",
    "page",
    type=PLACE,
    metavar="FILE",
    help="Also write the tables into this Markdown page, between its marks; rows of other kernels stay.",
)
@click.option("--use", default="tune", help="Use of the problems to report; default tune.")
@tables_option(f"Tuned tables to evaluate on problems of other uses; default {TUNED} if it exists.")
@loss_option("Percent that a problem may be slower than its best")
@configs_option("Maximum configs per portfolio")
@kernel_option
@manifests_option
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    database: Path,
    place: Path,
    page: Path | None,
    use: str,
    tables: Path | None,
    loss: float,
    most: int,
    kernels: tuple[str, ...],
    manifests: Path | None,
) -> None:
    """Write one HTML page: effects of tunables by shape, the best configs, portfolios, and skipped configs.

    If problems of other uses were measured, the page starts with the quality of the tuned tables on them. The page needs no network. The
    command needs the extra `tune` (scikit-learn).
    """
    from nojit.aot.tune.report.html import render_html
    from nojit.aot.tune.report.markdown import update_page
    from nojit.aot.tune.report.measurements import report  # only this command needs the extra `tune`

    found = measured_times_of(database, use, kernels)
    others = measured_times_by_use(database, kernels)
    rules = rules_of(out, manifests, [*found, *(one for many in others.values() for one in many)])
    quality = _quality(tables, others, rules)
    bounds = Bounds(loss / 100, most)
    reports = []
    for measured in found:
        out.note(f"{measured.kernel.name} on {measured.device.name}: {counted(len(measured.samples), 'time')}")
        reports.append(report(measured, rules[measured.kernel.name], bounds))
    if page is not None:
        update_page(page, reports, quality)
    write_file(place, render_html(reports, bounds.loss, quality).encode())
    facts = {
        "classes": [asdict(one) for each in reports for one in each.classes],
        "tables": [asdict(each.table) for each in reports],
        "quality": [asdict(one) for one in quality],
    }
    out.emit("tune report", {"path": str(place), **facts})
    out.line(str(place))


def _quality(
    place: Path | None, others: Mapping[str, Sequence[MeasuredTimes]], rules: Mapping[str, TuningRules]
) -> list[QualityFacts]:
    """Evaluate the tuned tables on problems of other uses; return nothing if the default folder is missing."""
    if not any(others.values()) or (place is None and not TUNED.is_dir()):
        return []
    tables = read_tables(place or TUNED)
    found = []
    for use, many in others.items():
        for measured in many:
            table = table_for(tables, measured.kernel.name, measured.device)
            result = evaluate(measured, table, rules[measured.kernel.name]) if table else None
            found.append(quality_facts(use, measured, result))
    return sorted(found, key=lambda one: (one.kernel, one.device, one.use))
