"""Compare compilers on this GPU: bundles of one toolchain each, and one of all. Needs a GPU and torch; no compiler, click or rich.

    python benchmarks/toolchains.py BUNDLE --out FOLDER [--budgets 300,200] [--families bmm,conv] [--kernel K] [--manifests manifests]

BUNDLE is a tuning bundle with several toolchains (`nojit build --retune --toolchain 3.6=VENV --toolchain 3.9`). Two steps measure all
its configs, in rounds of random order, into FOLDER/toolchains.db: problems that tables are made from, and problems held out. Then a
table is selected from the configs of each toolchain alone, and one from all. For each held-out problem, the times of the configs that
these tables choose are compared. Budgets are in seconds, one per step; a step resumes where it stopped, and a budget of 0 skips it.
Exits 1 if the mean time of a kernel with all toolchains is longer than with one of them by more than 1 % and the noise.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from nojit.aot.tune.measure.child_main import Setup
from nojit.aot.tune.measure.request import TuneRequest
from nojit.aot.tune.measure.tuning_run import tune
from nojit.aot.tune.select.lookup import find_config, look_up
from nojit.aot.tune.select.manifest_rules import read_rules
from nojit.aot.tune.select.measured_times import MeasuredTimes, collect
from nojit.aot.tune.select.rules import TuningRules
from nojit.aot.tune.select.selection import Bounds, select
from nojit.aot.tune.store.database import open_database
from nojit.runtime.errors import NojitError
from nojit.runtime.tuning.tuned_tables import TunedConfig, TunedTable
from tuning import FAMILIES, GPU, Progress

USES = ("tune", "held_out")
ALL = "all"
SLOWER = 0.01
BOUNDS = Bounds(0.02, 8)


@dataclass(frozen=True)
class Choice:
    """The config that a table chooses for a problem."""

    us: float
    noise: float
    toolchain: str


@dataclass(frozen=True)
class Result:
    """One kernel on the held-out problems that every table covers."""

    kernel: str
    problems: int
    noise: float
    """Median half width of the intervals, as a share of the time."""
    wins: dict[str, int]
    """Problems on which each toolchain alone is the fastest."""
    chosen: dict[str, int]
    """Problems for which the table of all chooses each toolchain."""
    all_over: dict[str, float]
    """Geometric mean of the time with all over that with each toolchain alone."""
    slower: list[tuple[float, str, str]]
    """Problems on which all are slower than the best toolchain alone by more than the noise: by how much, name, which."""
    image_bytes: dict[str, int]
    """Size of the images that each table needs, of the measured variants, before compression."""

    @property
    def size(self) -> float:
        """Size of the images of all over that of the smallest toolchain alone."""
        return self.image_bytes[ALL] / min(self.image_bytes[name] for name in self.wins)

    @property
    def kept(self) -> bool:
        """Whether all are never slower than one, in the mean."""
        return max(self.all_over.values()) <= 1 + SLOWER + 2 * self.noise


def measure(given: argparse.Namespace, use: str, budget_s: float) -> None:
    """Measure every config for the problems of a use."""
    print(f"== {use}, at most {budget_s:.0f} s", flush=True)
    setup = Setup(
        GPU, given.bundle, tuple(f"{family}:{use}" for family in given.families.split(",")), tuple(given.kernel)
    )
    progress = Progress()
    with open_database(given.out / "toolchains.db", create=True) as database:
        # every config to the end: dropping slow ones early would leave a slower toolchain without precise times
        done = tune(TuneRequest(setup, budget_s, True, USES.index(use)), database, progress)
    print(f"{done.pairs} pairs in {done.seconds:.0f} s; {done.left} problems left", flush=True)
    for (kernel, status, words), count in progress.faults.most_common(20):
        print(f"  {kernel}: {status} x {count}: {words}")


def toolchain_of(measured: MeasuredTimes, config: int) -> str:
    """Return the toolchain that compiled a config."""
    return str(measured.configs[config].settings.get("toolchain") or "")


def only(measured: MeasuredTimes, toolchain: str) -> MeasuredTimes:
    """Return the measurements of one toolchain's configs."""
    configs = {number: one for number, one in measured.configs.items() if toolchain_of(measured, number) == toolchain}
    return replace(
        measured,
        configs=configs,
        samples={pair: one for pair, one in measured.samples.items() if pair[1] in configs},
        unfit={pair: one for pair, one in measured.unfit.items() if pair[1] in configs},
    )


def choose(held: MeasuredTimes, table: TunedTable, rules: TuningRules) -> dict[int, Choice]:
    """Return what a table chooses for each held-out problem."""
    chosen = {}
    for number, problem in held.problems.items():
        found = look_up(table, rules.bucket, problem, held.device.multiprocessors)
        for config in (find_config(held.configs, one) for one in (found.use if found else ())):
            if config is not None and (sample := held.samples.get((number, config))):
                chosen[number] = Choice(sample.us, sample.noise, toolchain_of(held, config))
                break
    return chosen


def read_sizes(bundle: Path) -> dict[str, dict[frozenset[str], int]]:
    """Return the size of each image by kernel and words of its label, from the report beside a bundle."""
    report = json.loads(bundle.with_suffix(".report.json").read_text(encoding="utf-8"))
    sizes: dict[str, dict[frozenset[str], int]] = {}
    for variant in report["variants"]:
        sizes.setdefault(variant["kernel"], {})[frozenset(variant["label"].split())] = variant["image_bytes"]
    return sizes


def image_bytes(configs: Iterable[TunedConfig], sizes: Mapping[frozenset[str], int]) -> int:
    """Return the size of the images of the variants of some configs."""
    wanted = [{f"{name}={value!r}" for name, value in config.settings} for config in configs]
    return sum(size for words, size in sizes.items() if any(each <= words for each in wanted))


def mean(ratios: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def compare(
    tuned: MeasuredTimes, held: MeasuredTimes, rules: TuningRules, sizes: Mapping[frozenset[str], int]
) -> Result | None:
    """Compare the choices of tables of each toolchain with those of a table of all; None if nothing can be compared."""
    names = sorted({toolchain_of(tuned, config) for config in tuned.configs})
    tables = {name: select(only(tuned, name), rules, BOUNDS).table for name in names}
    tables[ALL] = select(tuned, rules, BOUNDS).table
    choices = {name: choose(held, table, rules) for name, table in tables.items() if table.entries}
    problems = (
        sorted(set.intersection(*(set(each) for each in choices.values()))) if len(choices) == len(tables) else []
    )
    if not problems or len(names) < 2:
        return None
    noise = statistics.median(choices[ALL][one].noise for one in problems)
    best = {one: min(names, key=lambda name: choices[name][one].us) for one in problems}
    slower = []
    for one in problems:
        alone, both = choices[best[one]][one], choices[ALL][one]
        if both.us > alone.us * (1 + SLOWER + alone.noise + both.noise):
            slower.append((both.us / alone.us - 1, held.problems[one].name, best[one]))
    return Result(
        kernel=held.kernel.name,
        problems=len(problems),
        noise=noise,
        wins={name: sum(best[one] == name for one in problems) for name in names},
        chosen={name: sum(choices[ALL][one].toolchain == name for one in problems) for name in names},
        all_over={name: mean([choices[ALL][one].us / choices[name][one].us for one in problems]) for name in names},
        slower=sorted(slower, reverse=True),
        image_bytes={name: image_bytes(table.configs, sizes) for name, table in tables.items()},
    )


def show(result: Result) -> None:
    """Print the row of a kernel, and the problems on which one toolchain alone is faster."""
    words = "; ".join(
        f"{name}: fastest {result.wins[name]}, chosen {result.chosen[name]}, all/{name} {result.all_over[name]:.3f}"
        for name in result.wins
    )
    verdict = "ok" if result.kept else "SLOWER"
    print(
        f"{result.kernel:26s} {result.problems:4d} problems  {words}; noise {result.noise:.2%}, size {result.size:.2f}  {verdict}"
    )
    for share, problem, name in result.slower[:3]:
        print(f"    {share:+.1%} against {name} alone: {problem}")


def write_page(path: Path, results: list[Result]) -> None:
    """Write the comparison as a table of Markdown."""
    if not results:
        return
    names = list(results[0].wins)
    heads = [*(f"fastest with {name}" for name in names), *(f"chosen {name}" for name in names)]
    heads += [*(f"both / {name}" for name in names), "size"]
    lines = [f"| kernel | problems | {' | '.join(heads)} |", "|---" * (len(heads) + 2) + "|"]
    for each in results:
        counts = [str(of[name]) for of in (each.wins, each.chosen) for name in names]
        ratios = [f"{each.all_over[name]:.3f}" for name in names]
        cells = [f"`{each.kernel}`", str(each.problems), *counts, *ratios, f"{each.size:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Measure, then compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budgets", default="300,200")
    parser.add_argument(
        "--families", default=",".join(FAMILIES), help="whose problems; to list all takes half a minute"
    )
    parser.add_argument("--kernel", action="append", default=[])
    parser.add_argument("--manifests", type=Path, default=Path("manifests"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for use, budget_s in zip(USES, map(float, given.budgets.split(",")), strict=False):
        if budget_s > 0:
            measure(given, use, budget_s)
    rules, sizes = read_rules(given.manifests), read_sizes(given.bundle)
    with open_database(given.out / "toolchains.db") as database:
        tuned = {each.kernel.name: each for each in collect(database, "tune")}
        held = {each.kernel.name: each for each in collect(database, "held_out")}
    results: list[Result] = []
    for kernel in sorted(tuned.keys() & held.keys()):
        # near rows choose in every table: costs need scikit-learn
        result = compare(tuned[kernel], held[kernel], replace(rules[kernel], names=(), terms=()), sizes[kernel])
        if result is None:
            print(f"{kernel}: nothing to compare")
        else:
            results.append(result)
            show(result)
    write_page(given.out / "toolchains.md", results)
    rows = [{**asdict(result), "kept": result.kept} for result in results]
    (given.out / "toolchains.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if results and all(result.kept for result in results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NojitError as error:
        sys.exit(f"error: {error}")
