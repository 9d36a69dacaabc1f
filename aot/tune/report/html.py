"""The report as one self-contained HTML page, without scripts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from nojit.aot.tune.report.importance import Importance
from nojit.aot.tune.report.measurements import ClassFacts, KernelReport
from nojit.aot.tune.report.svg import bars_svg, curve_svg, heat_svg
from nojit.aot.tune.select.summaries import GroupFacts, QualityFacts

__all__ = ["render_html", "spell_factors"]

# smaller shares are noise of the fit
_SHOWN = 0.01
_BARS = 10
_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --ground: #ffffff; --line: #d1d9e0; --panel: #f6f8fa;
  --one: #2f6fde; --two: #c9822b; --hot: #d1495b }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --ground: #0d1117; --line: #3d444d;
  --panel: #151b23; --one: #6ea8fe; --two: #e3a857; --hot: #ff7b89 } }
body { margin: 0 auto; max-width: 1080px; padding: 24px; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 26px } h2 { margin-top: 48px; border-top: 1px solid var(--line); padding-top: 24px }
h3 { margin-top: 32px } h4 { margin-bottom: 6px } p.note, .note { color: var(--soft) }
table { border-collapse: collapse; margin: 10px 0; font-size: 14px; font-variant-numeric: tabular-nums }
th { text-align: left; font-weight: 600; color: var(--soft) } th, td { padding: 3px 14px 3px 0; vertical-align: top;
  border-bottom: 1px solid var(--line) } td.number, th.number { text-align: right } code { font-size: 13px }
.wide { overflow-x: auto } .side { display: flex; flex-wrap: wrap; gap: 24px } nav a { margin-right: 16px }
a { color: var(--one) } .bad { color: var(--hot); font-weight: 600 } summary { cursor: pointer; color: var(--soft) }
svg { max-width: 100%; height: auto; color: var(--ink) } svg text { font: 13px system-ui, sans-serif; fill: var(--ink) }
svg text.note { fill: var(--soft) } svg text.name { font-weight: 600 } .bar { fill: var(--one) } .heat { fill: var(--hot) }
.none { fill: var(--panel) } .axis { stroke: var(--line) } .limit { stroke: var(--hot); stroke-dasharray: 5 4 }
polyline { fill: none; stroke-width: 2 } .worst { stroke: var(--two) } .mean { stroke: var(--one) }
.dot-worst, svg text.of-worst { fill: var(--two) } .dot-mean, svg text.of-mean { fill: var(--one) }
"""
_ABOUT = """<p>nojit compiled every config of each kernel ahead of time, checked it against a reference, and timed it. The
<em>cost</em> of a config is its time over the problem's best time; its <em>loss</em> is the cost minus 1. The <em>share</em> of a
tunable is the part of the variance of log times that it explains alone; the share of a pair is the part that the two explain
together beyond that. Shares are a functional analysis of variance of a random forest, exact over all combinations of the
observed levels. R² measures the forest on times outside its training data; with a low R² the shares mean little.</p>"""

_QUALITY = """<p class="note">Each share is the best measured time over the selected config's time, on problems that were not
used to make the tables; the mean is geometric. A problem is unknown if the table does not cover it, or the selected config was
not measured.</p>"""


def render_html(reports: Sequence[KernelReport], loss: float, quality: Sequence[QualityFacts] = ()) -> str:
    """Render the reports as one HTML page.

    Args:
        reports: the kernels, in order.
        loss: the loss that portfolios should keep, as a share; drawn as a line.
        quality: results of evaluations, for the first table.
    """
    links = "".join(f'<a href="#k{place}">{escape(one.kernel)}</a>' for place, one in enumerate(reports))
    parts = [_kernel(place, one, loss) for place, one in enumerate(reports)]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            f"<title>Tuning report</title><style>{_STYLE}</style></head><body>",
            f"<h1>Tuning report</h1>{_ABOUT}<nav>{links}</nav>",
            _quality(quality),
            *parts,
            "</body></html>\n",
        ]
    )


def _quality(quality: Sequence[QualityFacts]) -> str:
    if not quality:
        return ""
    rows = [
        (
            f"<code>{escape(one.kernel)}</code>",
            escape(one.device),
            escape(one.use),
            str(one.problems),
            str(one.unknown),
            _percent(one.mean_share),
            _percent(one.worst_share),
            escape(one.worst_problem or "-"),
        )
        for one in quality
    ]
    heads = ("kernel", "device", "set", ">problems", ">unknown", ">mean share", ">worst share", "worst problem")
    return f"<h2>Quality of the tuned tables</h2>{_QUALITY}{_table(heads, rows)}"


def spell_factors(factors: Sequence[str]) -> str:
    """Return one factor, or a pair, as text."""
    return " \u00d7 ".join(factors)


def _kernel(place: int, one: KernelReport, loss: float) -> str:
    parts = [
        f'<h2 id="k{place}">{escape(one.kernel)} on {escape(one.device)}</h2>',
        _table((), [(escape(name), escape(words)) for name, words in one.facts]),
        "<h3>Shapes</h3>",
        _table(
            ("shapes", ">problems", ">configs", ">slowest / best", ">loss of default", ">worst loss", ">R²"),
            map(_class_row, one.classes),
        ),
        "<h3>Portfolio</h3>",
        *(_group(group, loss) for group in one.table.groups),
        *map(_class, one.classes),
        _left_out(one),
    ]
    return "\n".join(parts)


def _class_row(one: ClassFacts) -> tuple[str, ...]:
    found = one.importance
    spread = f"{found.spread:.2f}" if found else "-"
    fit = f"{found.fit:.2f}" if found and found.fit is not None else "-"
    losses = (_percent(one.default_loss), _percent(one.default_worst))
    return escape(one.shape_class), str(one.problems), str(one.configs), spread, *losses, fit


def _group(group: GroupFacts, loss: float) -> str:
    name = escape(group.label)
    if group.worst_loss is None:
        return f'<p class="bad">{name}: no set of configs serves every problem.</p>'
    kind = "" if group.kept else ' class="bad"'
    words = f"{len(group.configs)} of {group.candidates} configs for {group.rows} problems: worst loss {_percent(group.worst_loss)}, mean {_percent(group.mean_loss)}"
    words += "" if group.exact else "; the search was cut short: a better set may exist"
    configs = "".join(f"<li><code>{escape(label)}</code></li>" for label in group.configs)
    curve = curve_svg(f"Loss by portfolio size, {group.label}", group.curve, loss)
    return f'<h4>{name}</h4><p{kind}>{words}</p><div class="side"><div>{curve}</div><ol>{configs}</ol></div>'


def _class(one: ClassFacts) -> str:
    parts = [f"<h3>{escape(one.kernel)}: {escape(one.shape_class)}</h3>"]
    if one.importance is None:
        parts.append('<p class="note">No shares: nothing varies, or there are too few measurements.</p>')
    else:
        parts.append(_importance(one.importance))
    if one.heat is not None:
        names = escape(spell_factors(one.heat.names))
        picture = heat_svg(f"Median cost by {spell_factors(one.heat.names)}", one.heat)
        parts.append(f"<h4>Median cost by {names}</h4><div>{picture}</div>")
    rows = [
        (
            escape(best.problem),
            escape(best.dtype),
            f"{best.us:,.2f}",
            escape(best.rate),
            _percent(best.noise),
            _percent(best.default_loss),
            f"{best.slowest:.2f}",
            f"<code>{escape(best.config)}</code>",
        )
        for best in one.best
    ]
    heads = ("problem", "dtype", ">best, us", ">rate", ">noise", ">loss of default", ">slowest / best", "best config")
    parts.append(f"<details><summary>Best configs</summary>{_table(heads, rows)}</details>")
    return "\n".join(parts)


def _importance(found: Importance) -> str:
    shown = [(spell_factors(one.factors), one.share) for one in found.shares if one.share >= _SHOWN][:_BARS]
    fit = "too few times to validate the fit" if found.fit is None else f"R² {found.fit:.2f}"
    words = f"{found.samples:,} times, {fit}; interactions of three or more: {_percent(found.rest)}"
    title = "Share of the variance that each tunable explains"
    return f'<h4>Shares of the tunables</h4><p class="note">{words}</p><div>{bars_svg(title, shown)}</div>'


def _left_out(one: KernelReport) -> str:
    parts = []
    if one.unfit:
        rows = [
            (
                f'<span class="bad">{escape(bad.status)}</span>',
                str(bad.problems),
                f"<code>{escape(bad.config)}</code>",
                escape(bad.detail),
            )
            for bad in one.unfit
        ]
        parts.append(
            f"<h3>Wrong and failed configs</h3>{_table(('status', '>problems', 'config', 'first error'), rows)}"
        )
    if one.pruned:
        pruned = [(str(count), escape(reason)) for reason, count in one.pruned]
        parts.append(f"<h3>Pruned configs</h3>{_table(('>configs', 'reason'), pruned)}")
    return "\n".join(parts)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are HTML already; a head that starts with ``>`` marks a column of numbers."""
    kinds = [' class="number"' if head.startswith(">") else "" for head in heads]
    top = "".join(f"<th{kind}>{escape(head.lstrip('>'))}</th>" for kind, head in zip(kinds, heads, strict=True))
    body = []
    for row in rows:
        cells = zip(kinds or [""] * len(row), row, strict=True)
        body.append("<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in cells) + "</tr>")
    head = f"<thead><tr>{top}</tr></thead>" if heads else ""
    return f'<div class="wide"><table>{head}<tbody>{"".join(body)}</tbody></table></div>'


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
