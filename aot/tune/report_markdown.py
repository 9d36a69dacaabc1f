"""The report's tables as Markdown, to stand in a page between two marks. Pure but for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from nojit.aot.pack import write_file
from nojit.aot.tune.account import QualityFacts
from nojit.aot.tune.report import ClassFacts, KernelReport
from nojit.runtime.errors import TuningError

__all__ = ["BEGIN", "END", "render_markdown", "update_page"]

BEGIN = "<!-- measured: tuning -->\n"
END = "<!-- end -->"
_TUNABLES = 3


def update_page(page: Path, text: str) -> None:
    """Put a text between the marks of a page, in one step; a page that is not there is made.

    Raises:
        TuningError: the page has no such marks.
        OSError: it cannot be read.
        PackageError: it cannot be written.
    """
    old = page.read_text(encoding="utf-8") if page.exists() else BEGIN + END + "\n"
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise TuningError(f"expected a page with {BEGIN.strip()} and {END}", got="none", where=str(page))
    write_file(page, f"{before}{begin}{text}{end}{after}".encode())


def render_markdown(reports: Sequence[KernelReport], quality: Sequence[QualityFacts] = ()) -> str:
    """Write the tables of each device: by kernel and shapes, the portfolios, and how good tuned tables are."""
    parts = []
    for device in dict.fromkeys([*(one.device for one in reports), *(one.device for one in quality)]):
        judged = [one for one in quality if one.device == device]
        parts.append(_device(device, [one for one in reports if one.device == device]))
        parts += [_quality(judged)] if judged else []
    return "\n" + "\n".join(parts)


def _quality(judged: Sequence[QualityFacts]) -> str:
    heads = ("kernel", "measured on", "problems", "unknown", "mean share of the best", "worst share", "worst problem")
    rows = [
        (
            f"`{one.kernel}`",
            one.use,
            str(one.problems),
            str(one.unknown),
            _percent(one.mean_share),
            _percent(one.worst_share),
            one.worst_problem or "-",
        )
        for one in judged
    ]
    return f"How good the tables are:\n\n{_table(heads, rows)}"


def _device(device: str, reports: Sequence[KernelReport]) -> str:
    classes = [_class_row(one) for report in reports for one in report.classes]
    heads = (
        "kernel",
        "shapes",
        "problems",
        "configs",
        "slowest / best",
        "default behind best",
        "what explains the spread",
        "R²",
    )
    portfolios = [
        (
            f"`{report.kernel}`",
            ", ".join(group.dtypes),
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
    more = (
        "kernel",
        "dtypes",
        "problems",
        "candidates",
        "kept",
        "worst loss",
        "mean loss",
        "worst loss with 1, 2, ... configs",
    )
    return f"### {device}\n\n{_table(heads, classes)}\n{_table(more, portfolios)}"


def _class_row(one: ClassFacts) -> tuple[str, ...]:
    found = one.importance
    shares = found.shares[:_TUNABLES] if found else ()
    words = ", ".join(f"{' x '.join(share.factors)} {share.share:.0%}" for share in shares)
    behind = (
        f"{_percent(one.default_loss)}, at worst {_percent(one.default_worst)}" if one.default_loss is not None else "-"
    )
    return (
        f"`{one.kernel}`",
        one.shape_class,
        str(one.problems),
        str(one.configs),
        f"{found.spread:.1f}" if found else "-",
        behind,
        words or "-",
        f"{found.fit:.2f}" if found and found.fit is not None else "-",
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
