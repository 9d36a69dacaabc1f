"""Run on a GPU what CI cannot: every test that needs one, checkers, and every benchmark. One folder of logs, one table.

    python benchmarks/device.py BUNDLES --out FOLDER [--only tests,equality,check,bench] [--processes 8] [--limit 240]

BUNDLES holds the full profile for this GPU. Tests run side by side in several processes, checkers too; benchmarks one
after the other, with the GPU to themselves. Nothing runs longer than ``--limit`` seconds: what is cut short counts as failed. Each
run's output is in FOLDER, and the table says how each ended, how long it took, and its last line. Exits 1 if one failed.

- ``tests``: the modules of ``tests/gpu``, whose variants all come from BUNDLES;
- ``equality``: the same bits as Triton's own launcher gives, of the profile core; needs Triton;
- ``check``: compute-sanitizer's memcheck and racecheck over a sample of each kernel's launches;
- ``bench``: the benchmarks of operators and of launches.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = ("tests", "equality", "check", "bench")
# the slowest first: the others fill the gaps
SLOW = ("test_operators", "test_block_sparse_matmul", "test_gemm", "test_flex", "test_conv", "test_attention")
FAMILIES = (
    "attention",
    "block_sparse",
    "gemm",
    "pointwise",
    "scaled_mm",
    "mixed_mm",
    "b2b_gemm",
    "conv",
    "flex",
    "flex_decoding",
)

# how many parts racecheck takes, which slows kernels down most
RACES = 6

# of `tests/gpu/test_jit_equality.py`
EQUAL = (
    "attention",
    "b2b_gemm",
    "block_sparse",
    "conv",
    "flex",
    "flex_decoding",
    "gemm",
    "mixed_mm",
    "norm",
    "pointwise",
    "scaled_mm",
)


@dataclass(frozen=True)
class Run:
    """A command."""

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    name: str
    status: int | None
    """The exit status; None if it was cut short."""
    seconds: float
    last: str
    """The last line that it printed."""

    @property
    def good(self) -> bool:
        """Whether it did what it should; a module of tests that are all skipped did not."""
        return self.status == 0

    def line(self) -> str:
        """Say it in a line."""
        ended = "cut short" if self.status is None else "done" if self.good else f"exit {self.status}"
        return f"{self.name:<32} {ended:<10} {self.seconds:>6.0f} s  {self.last}"


def tests(bundles: Path) -> list[Run]:
    """List the modules of tests, the slowest first."""
    modules = sorted((ROOT / "tests/gpu").glob("test_*.py"), key=lambda path: (path.stem not in SLOW, path.stem))
    given = (("NOJIT_TEST_BUNDLES", str(bundles)),)
    return [
        Run(path.stem, (*_pytest(), str(path.relative_to(ROOT))), given)
        for path in modules
        if path.stem != "test_jit_equality"
    ]


def equality(bundles: Path) -> list[Run]:
    """List the comparisons with Triton's launcher, a family each."""
    given = (("NOJIT_TEST_BUNDLES", str(bundles)), ("NOJIT_TEST_PROFILE", "core"))
    test = "tests/gpu/test_jit_equality.py::test_launches_equal_those_of_tritons_own_launcher"
    return [Run(f"equality {family}", (*_pytest(), f"{test}[{family}]"), given) for family in EQUAL]


def check(bundles: Path) -> list[Run]:
    """List runs under compute-sanitizer; torch's cache of memory would hide what lies beside a tensor."""
    given = (("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),)
    sample = (sys.executable, "benchmarks/prove.py", str(bundles), "--part", "sample")
    # the runtime asks the driver for a parameter behind the last, to see that there is none
    sanitizer = ("compute-sanitizer", "--report-api-errors", "no", "--tool")
    # what is no hazard is left out of what it reports
    judged = (sys.executable, "benchmarks/races.py", str(bundles), "--run", *sanitizer, "racecheck", *sample, "--share")
    return [
        Run("memcheck", (*sanitizer, "memcheck", "--error-exitcode", "9", *sample), given),
        *(Run(f"racecheck {part}", (*judged, part), given) for part in (f"{n}/{RACES}" for n in range(1, RACES + 1))),
    ]


def bench(bundles: Path) -> list[Run]:
    """List the benchmarks."""
    scripts = [*FAMILIES, "operators"]
    runs = [
        Run(f"bench {name}", (sys.executable, f"benchmarks/{name}.py", str(bundles)))
        for name in scripts
        if (ROOT / f"benchmarks/{name}.py").exists()
    ]
    first = (sys.executable, "benchmarks/first_launch.py", str(bundles), "--repeat", "5")
    return [*runs, Run("bench first_launch", first)]


def _pytest() -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider")


def follow(run: Run, folder: Path, limit: float) -> Outcome:
    """Run a command to its end or the limit, its output in a file."""
    path = folder / f"{re.sub(r'[ /]', '_', run.name)}.log"
    started = time.monotonic()
    with path.open("w") as log:
        try:
            status: int | None = subprocess.run(
                run.command, cwd=ROOT, env=os.environ | dict(run.environment), stdout=log, stderr=log,
                timeout=limit, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            status = None
        except OSError as error:
            print(error, file=log)
            status = 127
    lines = path.read_text(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    outcome = Outcome(run.name, status, time.monotonic() - started, last[:120])
    print(outcome.line(), flush=True)
    return outcome


def side_by_side(runs: Iterable[Run], folder: Path, limit: float, processes: int) -> list[Outcome]:
    """Run commands, so many at a time."""
    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(lambda run: follow(run, folder, limit), runs))


def main(words: Sequence[str] | None = None) -> int:
    """Run the steps that are asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(STEPS))
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--limit", type=float, default=240.0)
    given = parser.parse_args(words)
    asked = given.only.split(",")
    if unknown := set(asked) - set(STEPS):
        parser.error(f"--only: expected some of {', '.join(STEPS)}, got {', '.join(sorted(unknown))}")
    given.out.mkdir(parents=True, exist_ok=True)
    bundles = given.bundles.resolve()
    outcomes: list[Outcome] = []
    for step, processes in zip(STEPS, (given.processes, 3, 2, 1), strict=True):
        if step in asked:
            outcomes += side_by_side(globals()[step](bundles), given.out, given.limit, processes)
    bad = [outcome.name for outcome in outcomes if not outcome.good]
    print(f"{len(outcomes)} runs; failed: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
