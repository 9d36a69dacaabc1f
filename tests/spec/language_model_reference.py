"""The tables of docs/operators-in-llms.md, from the times that benchmarks/language_model.py writes."""

from __future__ import annotations

import json
from typing import Any

from tests.spec.pages import ROOT, with_commas

__all__ = ["render_shares", "render_speedups"]


def _passes() -> dict[str, dict[str, dict[str, float]]]:
    return _run()["passes"]


def _run() -> dict[str, Any]:
    return json.loads((ROOT / "docs/operators-in-llms.json").read_text(encoding="utf-8"))


def render_shares() -> str:
    """Return the share of each operator in the time of a pass with torch's eager operators."""
    passes = _passes()
    sums = {label: sum(ms["torch"] for ms in parts.values()) for label, parts in passes.items()}
    rows = [
        [name, *(f"{parts[name]['torch'] / sums[label]:.1%}" for label, parts in passes.items())] for name in _names()
    ]
    return _table([*rows, ["all, ms", *(f"{whole:.2f}" for whole in sums.values())]])


def render_speedups() -> str:
    """Return nojit's speed relative to torch's eager operators, and what the faster of the two saves of each pass."""
    passes = _passes()
    rows = [
        [name, *(f"{parts[name]['torch'] / parts[name]['nojit']:.2f}" for parts in passes.values())]
        for name in _names()
        if all("nojit" in parts[name] for parts in passes.values())
    ]
    saved = [_saved(parts, ("torch",)) for parts in passes.values()]
    compiled = [_saved(parts, ("torch", "compiled")) for parts in passes.values()]
    alone = [1 - _least(parts, ("torch", "compiled")) / _least(parts, ("torch",)) for parts in passes.values()]
    return _table(
        [
            *rows,
            ["**time saved beside eager torch**", *(f"**{share:.1%}**" for share in saved)],
            ["time that torch.compile saves beside eager torch", *(f"{share:.1%}" for share in alone)],
            ["time saved beside torch.compile", *(f"{share:.1%}" for share in compiled)],
        ]
    )


def _saved(parts: dict[str, dict[str, float]], others: tuple[str, ...]) -> float:
    """Return the share of a pass that nojit saves where it is faster than the best of the `others`."""
    return 1 - _least(parts, (*others, "nojit")) / _least(parts, others)


def _least(parts: dict[str, dict[str, float]], contenders: tuple[str, ...]) -> float:
    """Return the time of a pass in which each operator is the fastest of `contenders`."""
    return sum(min(ms[name] for name in contenders if name in ms) for ms in parts.values())


def _names() -> list[str]:
    return list(next(iter(_passes().values())))


def _table(rows: list[list[str]]) -> str:
    head = ["part", *(with_commas(label) for label in _passes())]
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]]) + "\n"
