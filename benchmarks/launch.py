"""Measure one launch against other launchers, and compare it with the bars. Needs a GPU and torch.

    python benchmarks/launch.py [--bundle FOLDER] [--out FOLDER] [--rounds 60] [--launches 200] [--args 1,4,12,30]

FOLDER is the output of `nojit bench bundles`; without it the kernels are built first, which needs Triton. Equivalent to
`nojit bench launch`, for machines without click and rich. Exits 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bars import launch_verdicts
from nojit.aot.bench.benchmarks import bench_launch, save
from nojit.aot.bench.launch import LaunchBench
from nojit.runtime.errors import NojitError


def show(bench: LaunchBench) -> None:
    """Print the figures."""
    print(", ".join(f"{name} {value}" for name, value in bench.environment.items()))
    print(f"{'args':>4s}  {'contender':18s} {'median us':>10s} {'x C loop':>9s} {'best us':>9s} {'x C loop':>9s}")
    for figure in bench.figures:
        ratios = [f"{ratio:9.2f}" if ratio else f"{'-':>9s}" for ratio in (figure.median_ratio, figure.best_ratio)]
        print(
            f"{figure.arguments:4d}  {figure.contender:18s} {figure.median_us:10.2f} {ratios[0]}"
            f" {figure.best_us:9.2f} {ratios[1]}"
        )
    for missing in bench.unmeasured:
        print(f"not measured: {missing.contender}, {missing.arguments} arguments: {missing.reason}")


def main() -> int:
    """Print the figures, then the bars."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--launches", type=int, default=200)
    parser.add_argument("--args", default="1,4,12,30")
    parser.add_argument("--against", action="append", default=[])
    given = parser.parse_args()
    arguments = [int(number) for number in given.args.split(",")]
    bench = bench_launch(given.bundle, arguments, given.against, given.rounds, given.launches)
    show(bench)
    if given.out:
        save(given.out, bench)
    verdicts = launch_verdicts(bench)
    for verdict in verdicts:
        print(verdict)
    return 0 if verdicts and all(verdict.holds for verdict in verdicts) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NojitError as error:
        sys.exit(f"error: {error}")
