"""What the benchmarks of operators make of times: lines, ratios and their means, a chart, and whether bars are kept."""

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
"""The contender that is compared; names of its other ways begin alike."""
BEST = "the best"

Times = Mapping[str, float | None]
"""What each contender takes; None for one that did not run."""


@dataclass(frozen=True)
class Promise:
    """What ratios of a group to a contender must reach."""

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
    """Multiplications and additions; 0 where times are shown, in us, instead of TFLOP/s."""
    moved_bytes: int
    """What has to be read and written at least."""
    bars: Mapping[str, float] = field(default_factory=dict)
    """Least ratio to a contender at this very shape."""
    rivals: Collection[str] = ()
    """Contenders that the best of is one more to be compared with."""

    @property
    def values(self) -> dict[str, float | None]:
        """What is shown of each contender: TFLOP/s, or us."""
        return {
            name: None if ms is None else self.flops / ms / 1e9 if self.flops else 1e3 * ms
            for name, ms in self.ms.items()
        }

    @property
    def ratios(self) -> dict[str, float]:
        """How many times as fast nojit is as each other that ran, and as the best of the rivals."""
        others = {name: ms for name, ms in self.ms.items() if ms is not None and not name.startswith(OURS)}
        if rivals := [others[name] for name in self.rivals if name in others]:
            others[BEST] = min(rivals)
        own = self.ms[OURS]
        return {name: ms / own for name, ms in others.items()}

    def line(self) -> str:
        """Say it in one line, with a dash for what did not run."""
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
    """Read the command line, and have operators take their kernels from the bundles that it names.

    Args:
        doc: the benchmark's description.
        groups: what ``--only`` chooses from; all of them by default.
        rounds: the default of ``--rounds``.
        argv: the command line; the process's if None.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", help="a file or folder that holds the kernels")
    parser.add_argument("--rounds", type=int, default=rounds, help="in which the contenders take turns")
    parser.add_argument("--only", default=",".join(groups), metavar="GROUPS", help=f"some of {','.join(groups)}")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="where to draw what was measured")
    parser.add_argument(
        "--compile", action="store_true", help="have torch.compile take part: needs Triton, and minutes"
    )
    given = parser.parse_args(argv)
    given.only = given.only.split(",")
    if unknown := [name for name in given.only if name not in groups]:
        parser.error(f"--only: expected some of {','.join(groups)}, got {','.join(unknown)}")
    os.environ["NOJIT_BUNDLES"] = given.bundles
    return given


def judge(rows: Sequence[Row], promises: Mapping[tuple[str, str], Promise]) -> bool:
    """Print the geometric mean and the least ratio of each group to each contender; say whether all bars are kept.

    Args:
        rows: all that was measured.
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
    """Print one line of a group that ran beside a contender."""
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
    """Draw every value, the contenders of a row together.

    Args:
        title: of the chart.
        where: the device, and what else was the same for all.
        rows: all that was measured.
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
    """Print rows as they come, draw them if there is a path, judge them, and exit: with 1 if a bar is missed.

    Args:
        rows: measured one after the other.
        promises: by group and contender.
        title: of the chart.
        where: as for `chart`.
        path: of the chart; None draws none.
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
