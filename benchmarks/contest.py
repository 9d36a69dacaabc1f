"""Common parts of operator benchmarks: result lines, ratios and their means, charts, and bars."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nojit.aot.bench.plot import Bar, Chart, Group, svg

__all__ = ["BEST", "OURS", "Promise", "Row", "arguments", "chart", "judge", "report"]

OURS = "nojit"
"""The contender that is compared; names of its other configurations start with it."""
BEST = "the best"

Times = Mapping[str, float | None]
"""Time of each contender; None if it did not run."""


@dataclass(frozen=True)
class Promise:
    """The ratios that a group must reach against a contender."""

    mean: float = 0.0
    """Least geometric mean."""
    least: float = 0.0
    """Least ratio of any shape."""


@dataclass(frozen=True)
class Row:
    """One measured shape."""

    group: str
    label: str
    ms: Times
    flops: int
    """The number of multiplications and additions; 0 to show times in us instead of TFLOP/s."""
    moved_bytes: int
    """The least number of bytes to read and write."""
    bars: Mapping[str, float] = field(default_factory=dict)
    """Least ratio to a contender, for this shape."""
    rivals: Collection[str] = ()
    """Contenders whose best is compared with, in addition to each."""

    @property
    def values(self) -> dict[str, float | None]:
        """The shown value of each contender: TFLOP/s, or us."""
        return {
            name: None if ms is None else self.flops / ms / 1e9 if self.flops else 1e3 * ms
            for name, ms in self.ms.items()
        }

    @property
    def ratios(self) -> dict[str, float]:
        """Speed of nojit relative to each other contender that ran, and to the best of the rivals."""
        others = {name: ms for name, ms in self.ms.items() if ms is not None and not name.startswith(OURS)}
        if rivals := [others[name] for name in self.rivals if name in others]:
            others[BEST] = min(rivals)
        own = self.ms[OURS]
        return {name: ms / own for name, ms in others.items()}

    def line(self) -> str:
        """Return the row as one line, with a dash for contenders that did not run."""
        shown = "  ".join(
            f"{name} {'-' if value is None else f'{value:.1f}':>7}" for name, value in self.values.items()
        )
        speed = self.moved_bytes / self.ms[OURS] / 1e9
        ratios = ", ".join(f"{ratio:.2f} x {name}" for name, ratio in self.ratios.items())
        low = any(ratio < self.bars.get(name, 0) for name, ratio in self.ratios.items())
        unit = "TFLOP/s" if self.flops else "us"
        return (
            f"{self.group:<12} {self.label:<40} {shown} {unit}  {speed:5.2f} TB/s  ({ratios}){'  LOW' if low else ''}"
        )


def arguments(
    doc: str | None, groups: Sequence[str], rounds: int, argv: Sequence[str] | None = None
) -> argparse.Namespace:
    """Parse the command line, and make operators use the bundles that it names.

    Args:
        doc: the benchmark's description.
        groups: the choices of ``--only``, all by default.
        rounds: the default of ``--rounds``.
        argv: the command line; the process's if None.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", help="a file or folder that holds the kernels")
    parser.add_argument(
        "--rounds", type=int, default=rounds, help="number of rounds; each contender runs once per round"
    )
    parser.add_argument("--only", default=",".join(groups), metavar="GROUPS", help=f"some of {','.join(groups)}")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="file for a chart of the results")
    parser.add_argument("--compile", action="store_true", help="add torch.compile; needs Triton and takes minutes")
    given = parser.parse_args(argv)
    given.only = given.only.split(",")
    if unknown := [name for name in given.only if name not in groups]:
        parser.error(f"--only: expected some of {','.join(groups)}, got {','.join(unknown)}")
    os.environ["NOJIT_BUNDLES"] = given.bundles
    return given


def judge(rows: Sequence[Row], promises: Mapping[tuple[str, str], Promise]) -> bool:
    """Print the geometric mean and the least ratio of each group against each contender; return whether all bars are kept.

    Args:
        rows: all measurements.
        promises: by group and contender.
    """
    kept = True
    for group in dict.fromkeys(row.group for row in rows):
        own = [row for row in rows if row.group == group]
        for other in dict.fromkeys(name for row in own for name in row.ratios):
            ran = [row for row in own if other in row.ratios]
            kept &= _judge(ran, other, promises.get((group, other)))
    return kept


def _judge(rows: Sequence[Row], other: str, promise: Promise | None) -> bool:
    """Print one line for a group against one contender."""
    mean_bar, least_bar = (promise.mean, promise.least) if promise else (0.0, 0.0)
    found = [(row.ratios[other], max(least_bar, row.bars.get(other, 0.0)), row.label) for row in rows]
    mean = statistics.geometric_mean(ratio for ratio, _, _ in found)
    least, _, where = min(found)
    missed = [f"mean below {mean_bar:g}"] if mean < mean_bar else []
    missed += [f"{label} at {ratio:.2f}, below {bar:g}" for ratio, bar, label in found if ratio < bar]
    judged = promise is not None or any(bar for _, bar, _ in found)
    verdict = f": MISSED: {'; '.join(missed)}" if missed else ": kept" if judged else ""
    print(
        f"{rows[0].group} to {other}: geometric mean {mean:.3f} of {len(found)} shapes, least {least:.2f} at {where}{verdict}"
    )
    return not missed


def chart(title: str, where: str, rows: Sequence[Row]) -> Chart:
    """Return a chart of every value, grouped by row.

    Args:
        title: the chart's title.
        where: the device and other conditions common to all.
        rows: all measurements.
    """
    groups = [
        Group(
            f"{row.group}, {row.label}, {'TFLOP/s' if row.flops else 'us'}",
            tuple(
                Bar(name, ((name, value),), f"{value:.1f}") for name, value in row.values.items() if value is not None
            ),
        )
        for row in rows
    ]
    return Chart(title, where, tuple(groups))


def report(
    rows: Iterable[Row], promises: Mapping[tuple[str, str], Promise], title: str, where: str, path: Path | None
) -> None:
    """Print rows as they arrive, draw them if `path` is given, and exit: with 1 if a bar is missed.

    Args:
        rows: measured one after the other.
        promises: by group and contender.
        title: the chart's title.
        where: as for `chart`.
        path: the chart's file; None for no chart.
    """
    print(where)
    found: list[Row] = []
    for row in rows:
        found.append(row)
        print(row.line(), flush=True)
    if path is not None:
        path.write_text(svg(chart(title, where, found)), encoding="utf-8")
    kept = judge(found, promises)
    print(f"bars: {'kept' if kept else 'MISSED'}")
    sys.exit(0 if kept else 1)
