"""Charts of many rows as SVG: for each family a panel with a point for each shape. Pure: numbers in, text out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Panel", "Point", "draw_panels"]

_PANELS, _WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 4, 190, 150, 48, 84, 46
_RATIOS = (0.4, 0.5, 0.75, 1.0, 1.5, 2.5)
_STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 14px }
.note { fill: #59636e }
.ground { fill: #ffffff }
.grid { stroke: #d1d9e0 }
.level { stroke: #59636e }
.point { fill: #2f6fde; fill-opacity: 0.55 }
.slow { fill: #b0413e; fill-opacity: 0.8 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.note { fill: #9198a1 }
.ground { fill: #0d1117 }
.grid { stroke: #30363d }
}
</style>"""


@dataclass(frozen=True, slots=True)
class Point:
    """One shape."""

    label: str
    work: float
    """Operations, or bytes."""
    ratio: float
    """Speed relative to the best library."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One family."""

    title: str
    unit: str
    """Of the work: ``"FLOP"`` or ``"B"``."""
    points: tuple[Point, ...]


def draw_panels(title: str, where: str, panels: Sequence[Panel]) -> str:
    """Return the panels as SVG, four in a row.

    Both axes are logarithmic: work to the right, ratio upwards; points outside of the ratios shown lie on the edge.
    Points below 0.75 are red. The tooltip of a point has its shape and ratio.
    """
    rows = -(-len(panels) // _PANELS)
    width = _LEFT + _PANELS * (_WIDTH + _GAP)
    height = _TOP + rows * (_HEIGHT + 2 * _GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img" aria-label="{escape(where)}">',
        _STYLE,
        '<rect class="ground" width="100%" height="100%"/>',
        f'<text class="title" x="16" y="28">{escape(title)}</text>',
        f'<text class="note" x="16" y="50">{escape(where)}</text>',
    ]
    for number, panel in enumerate(panels):
        left = _LEFT + number % _PANELS * (_WIDTH + _GAP)
        lines += _panel(panel, left, _TOP + number // _PANELS * (_HEIGHT + 2 * _GAP))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(panel: Panel, left: int, top: int) -> Iterator[str]:
    yield f'<text x="{left}" y="{top - 8}">{escape(panel.title)}</text>'
    for ratio in _RATIOS:
        height = top + _upwards(ratio)
        kind = "level" if ratio == 1.0 else "grid"
        yield f'<line class="{kind}" x1="{left}" x2="{left + _WIDTH}" y1="{height:.1f}" y2="{height:.1f}"/>'
        yield f'<text class="note" x="{left - 6}" y="{height + 4:.1f}" text-anchor="end">{ratio:g}</text>'
    work = [point.work for point in panel.points]
    least, most = math.log(min(work)), math.log(max(work))
    for ends, at, anchor in ((min(work), left, "start"), (max(work), left + _WIDTH, "end")):
        words = escape(f"{_short(ends)}{panel.unit}")
        yield f'<text class="note" x="{at}" y="{top + _HEIGHT + 18}" text-anchor="{anchor}">{words}</text>'
    for point in panel.points:
        across = left + _WIDTH * (math.log(point.work) - least) / max(most - least, 1e-9)
        kind = "slow" if point.ratio < 0.75 else "point"
        yield (
            f'<circle class="{kind}" cx="{across:.1f}" cy="{top + _upwards(point.ratio):.1f}" r="2.6">'
            f"<title>{escape(point.label)}: {point.ratio:.2f}</title></circle>"
        )


def _upwards(ratio: float) -> float:
    """Return the distance of a ratio from the panel's upper edge."""
    least, most = math.log(_RATIOS[0]), math.log(_RATIOS[-1])
    return _HEIGHT * (most - min(max(math.log(ratio), least), most)) / (most - least)


def _short(value: float) -> str:
    """Return a number with three digits at most and a prefix of the SI."""
    for prefix in ("", "k", "M", "G", "T"):
        if value < 999.5:
            return f"{value:.3g} {prefix}"
        value /= 1000
    return f"{value:.3g} P"
