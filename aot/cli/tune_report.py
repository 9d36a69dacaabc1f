"""``nojit tune report``: what was measured, for people."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
from nojit.aot.cli.console import Output, counted, output_options
from nojit.aot.cli.tune_common import database_argument, evidence_of, kernel_option, manifests_option, rules_of
from nojit.aot.pack import write_file
from nojit.aot.tune.select import Bounds

__all__ = ["command"]


@click.command("report")
@database_argument
@click.option("--out", "place", type=click.Path(path_type=Path), required=True, help="The page to write.")
@click.option(
    "--markdown",
    "page",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also put the tables into this page, between its marks.",
)
@click.option("--use", default="tune", help="Problems to report; default tune.")
@click.option("--loss", type=click.FloatRange(0), default=5.0, help="Percent that portfolios are held to; default 5.")
@click.option(
    "--max-configs", "most", type=click.IntRange(1), default=6, help="Configs of a portfolio at most; default 6."
)
@kernel_option
@manifests_option
@output_options
def command(  # noqa: PLR0917 - click passes each by name
    out: Output,
    database: Path,
    place: Path,
    page: Path | None,
    use: str,
    loss: float,
    most: int,
    kernels: tuple[str, ...],
    manifests: Path | None,
) -> None:
    """Write one HTML page: which tunables matter for which shapes, the best configs, portfolios, what was left out.

    The page needs no network. Needs the extra `tune` (scikit-learn), for the model that tells what matters.
    """
    from nojit.aot.tune.report import report  # noqa: PLC0415 - the extra `tune` is named only to who needs it
    from nojit.aot.tune.report_html import render_html  # noqa: PLC0415 - likewise
    from nojit.aot.tune.report_markdown import render_markdown, update_page  # noqa: PLC0415 - likewise

    found = evidence_of(database, use, kernels)
    rules = rules_of(manifests, found)
    bounds = Bounds(loss / 100, most)
    reports = []
    for evidence in found:
        out.note(f"{evidence.kernel.name} on {evidence.device.name}: {counted(len(evidence.samples), 'time')}")
        reports.append(report(evidence, rules[evidence.kernel.name], bounds))
    write_file(place, render_html(reports, bounds.loss).encode())
    if page is not None:
        update_page(page, render_markdown(reports))
    classes = [asdict(one) for each in reports for one in each.classes]
    tables = [asdict(each.table) for each in reports]
    out.emit("tune report", {"path": str(place), "classes": classes, "tables": tables})
    out.line(str(place))
