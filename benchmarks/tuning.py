"""Tune every family on this GPU, and measure the data that tables are judged by. Needs a GPU and torch; no compiler, click or rich.

    python benchmarks/tuning.py BUNDLE --out FOLDER [--steps tune,held_out,repeat] [--budgets 180,150,180]
                                [--families bmm,conv] [--kernel K]

BUNDLE is a tuning bundle for this GPU (`nojit build --tuning`). The step `tune` measures the problems that tables are made from
(FOLDER/tune.db). `held_out`, `fresh` and `bars` measure all configs of other problems (into the same file; put a new draw of
`fresh` into a folder of its own). `repeat` runs `tune` once more into FOLDER/repeat.db, and `duel` times the choices of both
against each other, into FOLDER/duel.db: they must be equally fast. Budgets are in seconds, one per step. A step resumes where it
stopped. Exits 1 if nothing was measured, if a kernel of less than 100 us was slower than 20 pairs a second, or if one of two
choices is more than 2 % slower than the other.
"""

from __future__ import annotations

import argparse
import collections
import statistics
import sys
import time
from pathlib import Path

from nojit.aot.tune.measure.child_main import Setup
from nojit.aot.tune.measure.events import Event, Fault, Listed, Lost, identity_of
from nojit.aot.tune.measure.request import ProblemRun, TuneRequest, TuneRun
from nojit.aot.tune.measure.tuning_run import tune
from nojit.aot.tune.store.database import Database, open_database
from nojit.aot.tune.store.records import Device
from nojit.runtime.errors import NojitError

FAMILIES = (
    "pointwise",
    "norm",
    "rotary",
    "flash_attention",
    "flex",
    "flex_decoding",
    "block_sparse",
    "bmm",
    "mm_plus_mm",
    "scaled_mm",
    "mixed_mm",
    "b2b_gemm",
    "conv",
)
GPU = "nojit.aot.tune.measure.torch_gpu:open_gpu"
STEPS = ("tune", "held_out", "fresh", "repeat", "bars", "duel")
PAIRS_PER_S = 20
APART = 0.02
SAID_S = 20.0


class Progress:
    """Progress output of a step."""

    def __init__(self) -> None:
        self.faults: collections.Counter[tuple[str, str, str]] = collections.Counter()
        self.todo = self.done = 0
        self.last = time.monotonic()

    def begin(self, device: Device, todo: int, known: int) -> None:
        """Print the GPU and the number of problems."""
        self.todo = todo
        print(f"{device.name}, driver {device.driver}: {todo} problems, {known} measured before", flush=True)

    def problem(self, listed: Listed) -> None:
        """Do nothing; `ended` reports a problem."""

    def event(self, listed: Listed, event: Event) -> None:
        """Count and print failures."""
        if isinstance(event, Fault):
            self.faults[listed.kernel, event.status, f"{listed.name}: {event.detail}"] += 1
        elif isinstance(event, Lost):
            print(f"  {listed.kernel}, {listed.name}: {event.reason}", flush=True)

    def ended(self, summary: ProblemRun, left_s: float) -> None:
        """Print progress from time to time."""
        self.done += 1
        if summary.reason:
            print(f"  left out: {summary.kernel}, {summary.name} ({summary.dtype}): {summary.reason}", flush=True)
        if time.monotonic() - self.last >= SAID_S:
            self.last = time.monotonic()
            print(f"  {self.done} of {self.todo}, about {left_s:.0f} s left: {summary.kernel}", flush=True)


def run(step: str, bundle: Path, budget_s: float, families: list[str], kernels: tuple[str, ...], folder: Path) -> bool:  # noqa: PLR0917 - all parameters of a step
    """Run one step and print its figures; return whether it keeps the bar for throughput."""
    print(f"== {step}, at most {budget_s:.0f} s", flush=True)
    use = "tune" if step in {"repeat", "duel"} else step
    setup = Setup(GPU, bundle, tuple(f"{family}:{use}" for family in families), kernels)
    progress = Progress()
    only = {name: pair for name, pair in pairs_of(folder).items() if len(pair) > 1} if step == "duel" else None
    with open_database(folder / (f"{step}.db" if step in {"repeat", "duel"} else "tune.db"), create=True) as database:
        request = TuneRequest(setup, budget_s, use != "tune" or step == "duel", STEPS.index(step), only)
        done = tune(request, database, progress)
        show(done, progress, database)
    return bool(done.known or done.pairs) and (done.quick_pairs_per_s or PAIRS_PER_S) >= PAIRS_PER_S


def show(done: TuneRun, progress: Progress, database: Database) -> None:
    """Print the results of a step."""
    quick = f"{done.quick_pairs_per_s:.0f}" if done.quick_pairs_per_s else "-"
    print(
        f"{done.pairs} pairs in {done.seconds:.1f} s ({done.started_s:.1f} s until the start): {done.pairs_per_s:.0f} a"
        f" second, {quick} where a kernel takes less than 100 us; {done.left} problems left"
    )
    noises: dict[str, list[float]] = {}
    kernels, problems = database.kernels(), database.problems()
    for item in database.measurements():
        if item.rung >= 2 and item.noise is not None:
            noises.setdefault(kernels[problems[item.problem].kernel].name, []).append(item.noise)
    for kernel in dict.fromkeys(problem.kernel for problem in done.problems):
        mine = [problem for problem in done.problems if problem.kernel == kernel]
        pairs, seconds = sum(one.configs for one in mine), sum(one.seconds for one in mine)
        noise = statistics.median(noises[kernel]) if kernel in noises else float("nan")
        whole = sum(one.complete for one in mine)
        print(
            f"  {kernel:26s} {len(mine):4d} problems ({whole} complete) {pairs:6d} pairs {seconds:6.1f} s"
            f" {pairs / seconds:6.0f}/s  wrong {sum(one.wrong for one in mine)}  failed"
            f" {sum(one.failed for one in mine)}  noise {noise:.2%}"
        )
    for (kernel, status, words), count in progress.faults.most_common(12):
        print(f"  {kernel}: {status} x {count}: {words}")


def pick(database: Database) -> dict[tuple[str, str, str], str]:
    """Return the fastest config of the last rung, by problem; configs by their identity."""
    return {name: min(times, key=lambda one: times[one]) for name, times in timed(database, {2}).items()}


def timed(database: Database, rungs: set[int]) -> dict[tuple[str, str, str], dict[str, float]]:
    """Return the measurements of some rungs, by problem and by config."""
    kernels, problems, configs = database.kernels(), database.problems(), database.configs()
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for item in database.measurements(use="tune"):
        if item.status == "ok" and item.rung in rungs and item.median_us is not None:
            problem, config = problems[item.problem], configs[item.config]
            name = (kernels[problem.kernel].name, problem.name, problem.dtype)
            found.setdefault(name, {})[identity_of(config.settings)] = item.median_us
    return found


def pairs_of(folder: Path) -> dict[tuple[str, str, str], frozenset[str]]:
    """Return the choices of the two runs for problems that both measured: one config if they agree."""
    with open_database(folder / "tune.db") as first, open_database(folder / "repeat.db") as second:
        before, after = pick(first), pick(second)
    return {name: frozenset({before[name], after[name]}) for name in before.keys() & after.keys()}


def compare(folder: Path) -> bool:
    """Print the difference between the two choices of each problem, timed side by side; return whether it is small enough."""
    pairs = pairs_of(folder)
    with open_database(folder / "duel.db") as duel:
        times = timed(duel, {3})
    apart: dict[str, list[tuple[float, str]]] = {}
    for name, pair in pairs.items():
        both = [times[name][config] for config in pair if config in times.get(name, {})]
        if len(pair) == 1 or len(both) == 2:
            apart.setdefault(name[0], []).append((max(both) / min(both) - 1 if len(pair) > 1 else 0.0, name[1]))
    for kernel, ratios in sorted(apart.items()):
        worst, where = max(ratios)
        agreed, count = sum(not ratio for ratio, _ in ratios), sum(ratio > APART for ratio, _ in ratios)
        print(
            f"  {kernel:26s} {len(ratios)} problems, {agreed} picked alike, {count} more than {APART:.0%} apart, worst"
            f" {worst:.2%}: {where}"
        )
    print(f"  {len(pairs) - sum(map(len, apart.values()))} pairs of picks were not timed side by side")
    return not any(ratio > APART for ratios in apart.values() for ratio, _ in ratios)


def main() -> int:
    """Run the steps, then compare the repeat."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", default="tune,held_out,repeat")
    parser.add_argument("--budgets", default="180,150,180")
    parser.add_argument(
        "--families", default=",".join(FAMILIES), help="whose problems; to list all takes half a minute"
    )
    parser.add_argument("--kernel", action="append", default=[])
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    steps, budgets = given.steps.split(","), [float(word) for word in given.budgets.split(",")]
    good = True
    for step, budget_s in zip(steps, budgets, strict=False):
        good &= run(step, given.bundle, budget_s, given.families.split(","), tuple(given.kernel), given.out)
    if all((given.out / name).exists() for name in ("tune.db", "repeat.db", "duel.db")):
        print("== repeat against tune")
        good &= compare(given.out)
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NojitError as error:
        sys.exit(f"error: {error}")
