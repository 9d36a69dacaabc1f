"""The report's tables as Markdown, written between two marks of a page. Pure, except `update_page`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from nojit.aot.base.files import write_file
from nojit.aot.tune.report.measurements import KernelReport
from nojit.aot.tune.select.summaries import QualityFacts
from nojit.runtime.base.file_kinds import check_regular
from nojit.runtime.base.wording import worded
from nojit.runtime.errors import TuningError

__all__ = ["BEGIN", "END", "render_markdown", "update_page"]

BEGIN = "<!-- measured: tuning -->\n"
END = "<!-- end -->"
_PORTFOLIOS = (
    "kernel",
    "dtypes",
    "problems",
    "candidates",
    "selected",
    "worst loss",
    "mean loss",
    "worst loss with 1, 2, ... configs",
)
_QUALITY_TITLE = "Quality of the tuned tables:"
_QUALITY = ("kernel", "set", "problems", "unknown", "mean share of the best", "worst share", "worst problem")


@dataclass(frozen=True, slots=True)
class _Table:
    """One table of a device: a line of text above it, its heads, and its rows as lines; the first cell of a row is a kernel."""

    device: str
    words: str
    heads: str
    rows: tuple[str, ...]

    @property
    def place(self) -> tuple[str, str, str]:
        return self.device, self.words, self.heads


def update_page(page: Path, reports: Sequence[KernelReport], quality: Sequence[QualityFacts] = ()) -> None:
    """Replace the tables between the marks of a page, atomically; create the page if it is missing.

    Rows of kernels without a report stay. All rows of a reported kernel are replaced, even in tables without a new row for it,
    because the old rows describe another tuned table.

    Raises:
        TuningError: the page cannot be read, or lacks the marks.
        PackageError: the page cannot be written.
    """
    try:
        check_regular(page)
        old = page.read_text(encoding="utf-8") if page.exists() else BEGIN + END + "\n"
    except (OSError, UnicodeDecodeError) as error:
        raise TuningError("expected a page in Markdown", got=worded(error), where=str(page)) from None
    before, begin, rest = old.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not begin or not end:
        got = "one without; add both lines where the tables belong"
        raise TuningError(f"expected a page with {BEGIN.strip()} and {END}", got=got, where=str(page))
    reported = {*((one.device, one.kernel) for one in reports), *((one.device, one.kernel) for one in quality)}
    text = _text(_merged(_tables(reports, quality), _read(inside), reported))
    write_file(page, f"{before}{begin}{text}{end}{after}".encode())


def render_markdown(reports: Sequence[KernelReport], quality: Sequence[QualityFacts] = ()) -> str:
    """Return the tables of each device: the portfolios, and the quality of the tuned tables."""
    return _text(_tables(reports, quality))


def _tables(reports: Sequence[KernelReport], quality: Sequence[QualityFacts]) -> list[_Table]:
    tables = []
    for device in dict.fromkeys([*(one.device for one in reports), *(one.device for one in quality)]):
        here = [one for one in reports if one.device == device]
        judged = [one for one in quality if one.device == device]
        tables.append(_Table(device, "", _line(_PORTFOLIOS), tuple(map(_line, _portfolio_rows(here)))))
        if judged:
            tables.append(
                _Table(device, _QUALITY_TITLE, _line(_QUALITY), tuple(_line(_quality_row(one)) for one in judged))
            )
    return tables


def _merged(new: Sequence[_Table], old: Sequence[_Table], reported: Collection[tuple[str, str]]) -> list[_Table]:
    """Return the new tables with the old rows of kernels not in `reported`, sorted by kernel."""
    rows = {one.place: list(one.rows) for one in new}
    for one in old:
        kept = [row for row in one.rows if (one.device, _kernel_of(row)) not in reported]
        if kept:
            rows.setdefault(one.place, []).extend(kept)
    ordered = sorted(rows, key=lambda place: (place[0], place[1] == _QUALITY_TITLE))
    return [_Table(*place, tuple(sorted(rows[place], key=_kernel_of))) for place in ordered]


def _kernel_of(row: str) -> str:
    return row.split("|")[1].strip().strip("`")


def _text(tables: Sequence[_Table]) -> str:
    parts = []
    for device, here in groupby(tables, key=lambda one: one.device):
        parts.append(f"### {device}\n")
        for one in here:
            rule = "|" + "---|" * (one.heads.count("|") - 1)
            parts.append("\n".join([*([one.words, ""] if one.words else []), one.heads, rule, *one.rows]) + "\n")
    return "\n" + "\n".join(parts)


def _read(text: str) -> list[_Table]:
    """Parse the tables that `_text` wrote."""
    tables = []
    device = words = ""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            lines.append(line)
            continue
        if lines:
            tables.append(_Table(device, words, lines[0], tuple(lines[2:])))
            lines, words = [], ""
        if line.startswith("### "):
            device = line.removeprefix("### ")
        elif line:
            words = line
    return tables


def _quality_row(one: QualityFacts) -> tuple[str, ...]:
    return (
        f"`{one.kernel}`",
        one.use,
        str(one.problems),
        str(one.unknown),
        _percent(one.mean_share),
        _percent(one.worst_share),
        one.worst_problem or "-",
    )


def _portfolio_rows(reports: Sequence[KernelReport]) -> list[tuple[str, ...]]:
    return [
        (
            f"`{report.kernel}`",
            group.label,
            str(group.rows),
            str(group.candidates),
            str(len(group.configs)),
            _percent(group.worst_loss),
            _percent(group.mean_loss),
            " ".join(f"{step.worst_loss:.0%}" for step in group.curve),
        )
        for report in reports
        for group in report.table.groups
    ]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
