"""The tables of pages that show docs/random-shapes.json, the figures that benchmarks/random_shapes.py writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.spec.pages import ROOT, with_commas

__all__ = ["render_all", "render_few"]

FEW = ("attention", "conv2d", "mm")
"""What the README shows, beside the slowest of the other families."""


def _measured() -> dict[str, Any]:
    return json.loads((ROOT / "docs/random-shapes.json").read_text(encoding="utf-8"))


def render_all() -> str:
    """Return the table of every family, with the run it comes from."""
    whole = _measured()
    lines = [
        f"{whole['device']}, {whole['date']}, seed `{whole['seed']}`{_later(whole['families'].values())}:",
        "",
        "| operator | shapes of 5 us or more | mean | 10th percentile | worst | shorter shapes | mean | 10th percentile |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {family['title']} | {_cells(family['from_5_us'], shown=True)} | {_cells(family['below_5_us'], shown=False)} |"
            for family in whole["families"].values()
        ),
    ]
    return "\n".join(lines) + "\n"


def _later(families: Iterable[dict[str, Any]]) -> str:
    """Return the seeds of later runs, with the operators that they measured."""
    found: dict[str, list[str]] = {}
    for family in families:
        if "seed" in family:
            found.setdefault(family["seed"], []).append(family["title"])
    return "".join(f"; {', '.join(titles)}: seed `{seed}`" for seed, titles in found.items())


def render_few() -> str:
    """Return the table of a few families, the slowest among them."""
    families = _measured()["families"]
    slowest = min(families.keys() - set(FEW), key=lambda name: families[name]["from_5_us"]["mean"])
    lines = ["| operator | mean | 10th percentile | worst |", "|---|---|---|---|"]
    for name in (*FEW, slowest):
        spread = families[name]["from_5_us"]
        lines.append(
            f"| {families[name]['title']} | {spread['mean']:.2f} | {spread['tenth']:.2f} | {spread['worst'][0][0]:.2f} |"
        )
    return "\n".join(lines) + "\n"


def _cells(spread: dict[str, Any] | None, *, shown: bool) -> str:
    """Return the cells of a spread, with its worst shape if `shown`."""
    if spread is None:
        return "0 | | |" if shown else "0 | |"
    cells = [f"{spread['shapes']}", f"{spread['mean']:.2f}", f"{spread['tenth']:.2f}"]
    if shown:
        ratio, shape = spread["worst"][0]
        cells.append(f"{ratio:.2f} ({with_commas(shape)})")
    return " | ".join(cells)
