"""Bar charts as SVG. Pure: numbers in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

__all__ = ["Bar", "Chart", "Group", "svg"]

_WIDTH, _MARGIN, _LABELS, _NOTES = 860, 16, 190, 150
_ROW, _BAR, _TITLE, _GAP, _LETTER = 22, 14, 30, 14, 8
# width of the longest bar, however long the texts are
_LEAST = 100
_COLOURS = (
    "#2f6fde",
    "#7a9c2e",
    "#c9822b",
    "#a4508b",
    "#2a9d8f",
    "#8d6e63",
    "#b0413e",
    "#5c6bc0",
    "#607d8b",
    "#d4a017",
    "#26734d",
    "#d1608f",
)
# step on the circle of hues, in degrees: further colours of a chart differ from each other
_HUE = 137.5
_STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.note { fill: #59636e }
.ground { fill: #ffffff }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.note { fill: #9198a1 }
.ground { fill: #0d1117 }
}
</style>"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar."""

    label: str
    parts: tuple[tuple[str, float], ...]
    """Name and length of each part, in the chart's unit."""
    note: str
    """Text at the end of the bar."""


@dataclass(frozen=True, slots=True)
class Group:
    """Bars that share a scale."""

    title: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A bar chart."""

    title: str
    description: str
    """Text below the title, also read by screen readers."""
    groups: tuple[Group, ...]


def svg(chart: Chart) -> str:
    """Return a chart as SVG, with a legend if bars have several parts; the tooltip of a part has its name and length."""
    names = dict.fromkeys(name for group in chart.groups for bar in group.bars for name, _ in bar.parts)
    colours = {name: _colour(number) for number, name in enumerate(names)}
    lines, top = _legend(colours, _MARGIN + 2 * _TITLE) if len(colours) > 1 else ([], _MARGIN + 2 * _TITLE)
    bars = [bar for group in chart.groups for bar in group.bars]
    labels = _room(_LABELS, [bar.label for bar in bars])
    notes = _room(_NOTES, [bar.note for bar in bars])
    for group in chart.groups:
        lines += _group(group, colours, top, labels, notes)
        top += _TITLE + _ROW * len(group.bars) + _GAP
    title, description = escape(chart.title), escape(chart.description)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top}" viewBox="0 0 {_WIDTH} {top}" role="img">',
        f"<title>{title}</title>",
        f"<desc>{description}</desc>",
        _STYLE,
        f'<rect class="ground" width="{_WIDTH}" height="{top}"/>',
        f'<text class="title" x="{_MARGIN}" y="{_MARGIN + 14}">{title}</text>',
        f'<text class="note" x="{_MARGIN}" y="{_MARGIN + 36}">{description}</text>',
    ]
    return "\n".join([*head, *lines, "</svg>\n"])


def _colour(number: int) -> str:
    """Return the colour of a series; each series has another."""
    return _COLOURS[number] if number < len(_COLOURS) else f"hsl({number * _HUE % 360:.1f}, 45%, 50%)"


def _legend(colours: Mapping[str, str], top: int) -> tuple[list[str], int]:
    """Return the legend's elements, and the y coordinate below it."""
    lines, left = [], _MARGIN
    for name, colour in colours.items():
        wide = _BAR + 8 + _LETTER * len(name) + _GAP
        if left + wide > _WIDTH - _MARGIN:
            left, top = _MARGIN, top + _ROW
        lines.append(f'<rect x="{left}" y="{top}" width="{_BAR}" height="{_BAR}" fill="{colour}"/>')
        lines.append(f'<text x="{left + _BAR + 8}" y="{top + 12}">{escape(name)}</text>')
        left += wide
    return lines, top + _ROW + _GAP


def _room(least: int, texts: Iterable[str]) -> int:
    """Return the width of a column: that of its longest text and the gap, at least `least`."""
    return max([least, *(_LETTER * len(text) + _GAP for text in texts)])


def _group(group: Group, colours: Mapping[str, str], top: int, labels: int, notes: int) -> list[str]:
    longest = max((sum(length for _, length in bar.parts) for bar in group.bars), default=0)
    room = max(_WIDTH - 2 * _MARGIN - labels - notes, _LEAST)
    scale = room / longest if longest else 0
    lines = [f'<text class="title" x="{_MARGIN}" y="{top + 18}">{escape(group.title)}</text>']
    for place, bar in enumerate(group.bars):
        lines += _bar(bar, colours, (_MARGIN + labels, top + _TITLE + _ROW * place), scale)
    return lines


def _bar(bar: Bar, colours: Mapping[str, str], corner: tuple[float, int], scale: float) -> list[str]:
    left, top = corner
    lines = [f'<text x="{_MARGIN}" y="{top + 12}">{escape(bar.label)}</text>']
    for name, length in bar.parts:
        lines.append(
            f'<rect x="{left:.1f}" y="{top}" width="{length * scale:.1f}" height="{_BAR}" fill="{colours[name]}">'
            f"<title>{escape(name)}: {length:.2f}</title></rect>"
        )
        left += length * scale
    lines.append(f'<text class="note" x="{left + 8:.1f}" y="{top + 12}">{escape(bar.note)}</text>')
    return lines
