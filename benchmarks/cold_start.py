"""Measure the start of whole processes, and compare it with the bars. Needs a GPU.

    python benchmarks/cold_start.py [--bundle FOLDER] [--out FOLDER] [--rounds 7] [--kernels 1,50] [--against WAY]

FOLDER is the output of `nojit bench bundles`; without it the kernels are built first, which needs Triton. Equivalent to
`nojit bench cold-start`, for machines without click and rich. ``--against none`` skips torch. Exits 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bars import cold_start_verdicts
from nojit.aot.bench.benchmarks import bench_cold_start, save
from nojit.aot.bench.cold_start import ColdStartBench
from nojit.runtime.errors import NojitError


def show(bench: ColdStartBench) -> None:
    """Print the figures."""
    print(", ".join(f"{name} {value}" for name, value in bench.environment.items()))
    print(f"{'kernels':>7s}  {'way':18s} {'median ms':>10s} {'x ctypes':>9s} {'best ms':>9s}  stages, ms")
    for figure in bench.figures:
        ratio = f"{figure.ratio:9.2f}" if figure.ratio else f"{'-':>9s}"
        stages = ", ".join(f"{stage.name} {stage.ms:.2f}" for stage in figure.stages)
        print(f"{figure.kernels:7d}  {figure.way:18s} {figure.median_ms:10.1f} {ratio} {figure.best_ms:9.1f}  {stages}")
    for missing in bench.unmeasured:
        print(f"not measured: {missing.way}, {missing.kernels} kernels: {missing.reason}")


def main() -> int:
    """Print the figures, then the bars."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kernels", default="1,50")
    parser.add_argument("--against", action="append", default=[])
    given = parser.parse_args()
    counts = [int(number) for number in given.kernels.split(",")]
    bench = bench_cold_start(given.bundle, counts, given.against, given.rounds)
    show(bench)
    if given.out:
        save(given.out, bench)
    verdicts = cold_start_verdicts(bench)
    for verdict in verdicts:
        print(verdict)
    return 0 if verdicts and all(verdict.holds for verdict in verdicts) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NojitError as error:
        sys.exit(f"error: {error}")
