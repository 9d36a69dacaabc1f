"""``nojit tune report``: what was measured, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from nojit.aot.cli.console import PLACE, Output, counted, output_options
from nojit.aot.cli.tune_common import (
    TUNED,
    configs_option,
    database_argument,
    evidence_by_use,
    evidence_of,
    kernel_option,
    loss_option,
    manifests_option,
    read_tables,
    rules_of,
    tables_option,
)
from nojit.aot.pack import write_file
from nojit.aot.tune.account import QualityFacts, quality_facts
from nojit.aot.tune.evaluate import evaluate
from nojit.aot.tune.evidence import Evidence
from nojit.aot.tune.lookup import table_for
from nojit.aot.tune.rules import TuningRules
from nojit.aot.tune.select import Bounds

__all__ = ["command"]


@click.command("report")
@database_argument
@click.option("--out", "place", type=PLACE, required=True, help="The page to write.")
@click.option(
    "--markdown",
    "page",
    type=PLACE,
    metavar="FILE",
    help="Also put the tables into this page, between its marks; rows there of other kernels stay.",
)
@click.option("--use", default="tune", help="Problems to report; default tune.")
@tables_option(f"Tuned tables to judge on problems of other uses than tune; default {TUNED} if it is there.")
@loss_option("Percent that portfolios are held to")
@configs_option("Configs of a portfolio at most")
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
    """Write one HTML page: which tunables matter for which shapes, the best configs, portfolios, what was left out.

    How good tuned tables are on problems that they were not made from stands on top, if any were measured.

    The page needs no network. Needs the extra `tune` (scikit-learn), for the model that tells what matters.
    """
    from nojit.aot.tune.report import report  # noqa: PLC0415 - the extra `tune` is named only to who needs it
    from nojit.aot.tune.report_html import render_html  # noqa: PLC0415 - likewise
    from nojit.aot.tune.report_markdown import update_page  # noqa: PLC0415 - likewise

    found = evidence_of(database, use, kernels)
    others = evidence_by_use(database, kernels)
    rules = rules_of(out, manifests, [*found, *(one for many in others.values() for one in many)])
    quality = _quality(tables, others, rules)
    bounds = Bounds(loss / 100, most)
    reports = []
    for evidence in found:
        out.note(f"{evidence.kernel.name} on {evidence.device.name}: {counted(len(evidence.samples), 'time')}")
        reports.append(report(evidence, rules[evidence.kernel.name], bounds))
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
    place: Path | None, others: Mapping[str, Sequence[Evidence]], rules: Mapping[str, TuningRules]
) -> list[QualityFacts]:
    """Judge tuned tables by problems that they were not made from; without the default folder there is nothing to say."""
    if not any(others.values()) or (place is None and not TUNED.is_dir()):
        return []
    tables = read_tables(place or TUNED)
    found = []
    for use, many in others.items():
        for evidence in many:
            table = table_for(tables, evidence.kernel.name, evidence.device)
            result = evaluate(evidence, table, rules[evidence.kernel.name]) if table else None
            found.append(quality_facts(use, evidence, result))
    return sorted(found, key=lambda one: (one.kernel, one.device, one.use))
