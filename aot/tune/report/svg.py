"""Charts of the report as SVG, coloured by the page's style sheet. Pure: numbers in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from nojit.aot.tune.report.measurements import HeatMap
from nojit.aot.tune.select.summaries import CurveStep

__all__ = ["bars_svg", "curve_svg", "heat_svg"]

_ROW, _BAR, _LABEL, _WIDE = 24, 14, 210, 620
_CELL_W, _CELL_H, _LEFT, _TOP = 76, 34, 110, 44
# costs from here on have the strongest colour
_HOT = 2.0
_PLOT_W, _PLOT_H, _EDGE = 420, 180, 44


def bars_svg(title: str, bars: Sequence[tuple[str, float]]) -> str:
    """Return a bar chart of shares from 0 to 1."""
    room = _WIDE - _LABEL - 70
    lines = []
    for place, (label, share) in enumerate(bars):
        top = 6 + place * _ROW
        long = max(share, 0) * room
        lines.append(_text(_LABEL - 8, top + 12, label, "end"))
        lines.append(f'<rect class="bar" x="{_LABEL}" y="{top}" width="{long:.1f}" height="{_BAR}" rx="2"/>')
        lines.append(_text(_LABEL + long + 6, top + 12, f"{share:.1%}", kind="note"))
    return _svg(title, _WIDE, 12 + _ROW * len(bars), lines)


def heat_svg(title: str, heat: HeatMap) -> str:
    """Return a heat map of median costs: better cells are paler, the best is framed."""
    rows, columns = heat.levels
    known = [cost for line in heat.costs for cost in line if cost is not None]
    best = min(known, default=1.0)
    lines = [_text(_LEFT + _CELL_W * len(columns) / 2, 14, heat.names[1], "middle", "name")]
    lines.append(_text(6, _TOP - 10, heat.names[0], "start", "name"))
    for place, column in enumerate(columns):
        lines.append(_text(_LEFT + _CELL_W * (place + 0.5), _TOP - 10, column, "middle"))
    for number, row in enumerate(rows):
        top = _TOP + number * _CELL_H
        lines.append(_text(_LEFT - 10, top + 22, row, "end"))
        for place, cost in enumerate(heat.costs[number]):
            lines += _cell(_LEFT + place * _CELL_W, top, cost, framed=cost == best)
    width = max(_LEFT + _CELL_W * len(columns) + 10, 7 * len(heat.names[1]) + _LEFT)
    return _svg(title, width, _TOP + _CELL_H * len(rows) + 8, lines)


def _cell(left: float, top: float, cost: float | None, *, framed: bool) -> list[str]:
    place = f'x="{left + 1}" y="{top + 1}" width="{_CELL_W - 2}" height="{_CELL_H - 2}" rx="3"'
    middle = left + _CELL_W / 2
    if cost is None:
        return [f'<rect class="none" {place}/>', _text(middle, top + 22, "-", "middle", "note")]
    strength = 0.06 + 0.6 * min(max(cost - 1, 0) / (_HOT - 1), 1)
    frame = ' stroke="currentColor" stroke-width="2"' if framed else ""
    return [
        f'<rect class="heat" fill-opacity="{strength:.3f}" {place}{frame}/>',
        _text(middle, top + 22, f"{cost:.2f}", "middle"),
    ]


def curve_svg(title: str, curve: Sequence[CurveStep], loss: float) -> str:
    """Return a chart of worst and mean loss by portfolio size, with a line at the requested loss."""
    most = max([loss, *(step.worst_loss for step in curve)]) * 1.1 or 0.01
    last = max(step.configs for step in curve)

    def at(configs: float, share: float) -> tuple[float, float]:
        across = (configs - 1) / max(last - 1, 1)
        return _EDGE + across * _PLOT_W, 12 + (1 - share / most) * _PLOT_H

    lines = [_line(at(1, 0), at(last, 0), "axis"), _line(at(1, loss), at(last, loss), "limit")]
    lines += [_text(at(1, share)[0] - 6, at(1, share)[1] + 4, f"{share:.0%}", "end", "note") for share in (0, loss)]
    for kind, losses in (("worst", [s.worst_loss for s in curve]), ("mean", [s.mean_loss for s in curve])):
        points = [at(step.configs, share) for step, share in zip(curve, losses, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        lines.append(f'<polyline class="{kind}" points="{path}"/>')
        for (x, y), share in zip(points, losses, strict=True):
            lines.append(
                f'<circle class="dot-{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{share:.2%}</title></circle>'
            )
        lines.append(
            _text(points[-1][0] + 10, points[-1][1] + (-2 if kind == "worst" else 12), kind, kind=f"of-{kind}")
        )
    for step in curve:
        lines.append(_text(at(step.configs, 0)[0], 12 + _PLOT_H + 18, str(step.configs), "middle"))
    lines.append(_text(_EDGE + _PLOT_W / 2, 12 + _PLOT_H + 36, "configs in the portfolio", "middle", "note"))
    return _svg(title, _EDGE + _PLOT_W + 70, _PLOT_H + 56, lines)


def _line(start: tuple[float, float], end: tuple[float, float], kind: str) -> str:
    return f'<line class="{kind}" x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>'


def _text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def _svg(title: str, width: float, height: float, lines: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
    return "\n".join([head, f"<title>{escape(title)}</title>", *lines, "</svg>"])
