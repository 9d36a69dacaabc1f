"""Run everything that needs a GPU: tests, checkers and benchmarks. Write one archive of logs, and print one table.

    python benchmarks/device.py BUNDLES --out FOLDER [--only tests,equality,check,served,bench] [--processes 12] [--limit 240]
                                [--budget 560] [--devices 2] [--built FOLDER] [--families flex,conv]
                                [--modules test_conv,test_operators] [--select EXPRESSION]
                                [--earlier results.json]

BUNDLES holds the full profile for this GPU. Tests and checkers run in several processes in parallel, large modules in shares;
benchmarks run one after the other and have the GPU to themselves. No run takes longer than ``--limit`` seconds, and all of
them end within ``--budget``: runs that are cut short or left out count as failed.

FOLDER/logs.zip has each run's output, and FOLDER/results.json each run's status; both are written as runs end. The table
shows each run's status, time, last line and failed tests. With several GPUs, each run of tests and checks sees one of
them in turn, except tests about several devices. A run whose tests were all skipped, such as tests for two devices on a
machine with one, counts as neither done nor failed. Exits 1 if a run failed, or none was done.

If one call has too little time for everything, start a second one with the first one's results as ``--earlier``. It skips
the runs that are done, as long as bundles and sources are unchanged, and starts with those that took longest.

- ``tests``: the modules of ``tests/gpu``, with all variants from BUNDLES; all of them, or those of ``--modules``, and in these the
  tests that ``--select`` names as pytest's ``-k`` does;
- ``equality``: bit-for-bit comparison with Triton's own launcher; needs Triton. It covers the core profile, which is built
  here, or with ``--built`` the full profile in that folder, built elsewhere by the same Triton;
- ``check``: compute-sanitizer's memcheck and racecheck on a sample of each kernel's launches;
- ``served``: recorded and served programs, as `served.py` checks them;
- ``bench``: the benchmarks of operators and of launches.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TextIO

from served import PROGRAMS

ROOT = Path(__file__).resolve().parents[1]
STEPS = ("tests", "equality", "check", "served", "bench")
# a change in one of these folders between two calls makes the second start from scratch
ROOMS = ("aot", "benchmarks", "examples", "kernels", "manifests", "runtime", "tests")
SUFFIXES = (".py", ".c", ".h", ".toml")
# the slowest modules of tests, slowest first, and the number of shares that each is split into
SHARES = {
    "test_operators": 6,
    "test_flex": 8,
    "test_block_sparse_matmul": 4,
    "test_gemm": 3,
    "test_conv": 3,
    "test_flex_decoding": 3,
    "test_scaled_mm": 2,
    "test_attention": 1,
}
JUDGE = "test_every_variant_was_launched"
# pytest's last line if it skipped all tests; its exit status is 5 if the module itself was skipped
ALL_SKIPPED = re.compile(r"\d+ skipped(?:, \d+ (?:deselected|warnings?))* in ")
ALL_SKIPPED_STATUSES = (0, 5)
OF_ALL_DEVICES = frozenset({"test_devices", "served ranks"})
# with less time left, no run starts
LEAST_SECONDS = 10.0
# the most failed tests per run in the table
NAMED = 4
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
    "grouped_mm",
)

# families of `tests/gpu/families.py`
TESTED = (
    "attention",
    "b2b_gemm",
    "block_sparse",
    "conv",
    "flex",
    "flex_decoding",
    "gated_mm",
    "gemm",
    "grouped_mm",
    "mixed_mm",
    "norm",
    "pointwise",
    "rotary",
    "scaled_grouped_mm",
    "scaled_mm",
)
PARTS = {
    "attention": 5,
    "b2b_gemm": 6,
    "block_sparse": 4,
    "flex": 12,
    "flex_decoding": 3,
    "gemm": 4,
    "scaled_mm": 3,
}
EQUALITY = "tests/gpu/test_jit_equality.py"


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
    """The exit status; None if the run was cut short or never started."""
    seconds: float
    last: str
    """Its last line of output."""
    failed: tuple[str, ...] = ()
    """The failed tests, one line each."""
    skipped: bool = False
    """Whether all its tests were skipped."""

    @property
    def good(self) -> bool:
        """Whether it succeeded."""
        return self.status == 0 and not self.skipped

    @property
    def bad(self) -> bool:
        """Whether it failed or did not end."""
        return not self.good and not self.skipped

    @property
    def ended(self) -> str:
        """The status in words."""
        if self.status is None:
            return "cut short"
        return "skipped" if self.skipped else "done" if self.good else f"exit {self.status}"

    def line(self) -> str:
        """Return the run's line, followed by one for each of the first failed tests."""
        more = [f"    and {len(self.failed) - NAMED} more"] if len(self.failed) > NAMED else []
        words = f"{self.name:<32} {self.ended:<10} {self.seconds:>6.0f} s  {self.last}"
        return "\n".join([words, *(f"    {test[:200]}" for test in self.failed[:NAMED]), *more])


@dataclass
class Record:
    """The state of all runs, always up to date on disk."""

    folder: Path
    of: str
    """A digest of the bundles and sources."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """How long runs took in an earlier call, with any sources."""
    launched: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))
    """The folder in which shares of tests record their launches."""
    bytecode: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))
    """The folder for bytecode of the programs that are recorded and served."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take_over(self, earlier: Path) -> None:
        """Continue from the results of an earlier call."""
        results = json.loads(earlier.read_text())
        self.seconds = {name: run["seconds"] for name, run in results["runs"].items()}
        if results["of"] != self.of:
            print("bundles or sources are not those of the earlier call: everything runs")
            return
        runs = {name: Outcome(**run) for name, run in results["runs"].items()}
        self.outcomes = {name: run for name, run in runs.items() if run.good}
        for name, text in results["launched"].items():
            (self.launched / name).write_text(text)

    def add(self, outcome: Outcome, log: Path) -> None:
        """Record a run's status and output."""
        with self.lock:
            self.outcomes[outcome.name] = outcome
            print(outcome.line(), flush=True)
            with zipfile.ZipFile(self.folder / "logs.zip", "a", zipfile.ZIP_DEFLATED) as archive:
                archive.write(log, log.name)
            runs = {name: asdict(each) for name, each in self.outcomes.items()}
            launched = {path.name: path.read_text() for path in sorted(self.launched.glob("*.json"))}
            written = self.folder / "results.json.part"
            written.write_text(json.dumps({"of": self.of, "runs": runs, "launched": launched}, indent=1))
            written.replace(self.folder / "results.json")

    def left(self, runs: Iterable[Run]) -> list[Run]:
        """Return the runs that are not done, longest first if known."""
        open_runs = [run for run in runs if run.name not in self.outcomes]
        return sorted(open_runs, key=lambda run: -self.seconds.get(run.name, 0.0))


def digest_of(bundles: Path) -> str:
    """Return a digest of the bundles and of the sources that tests and benchmarks run."""
    found = hashlib.sha256()
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in SUFFIXES]
    for path in [*sorted(sources), *sorted(bundles.glob("*.nojit"))]:
        found.update(path.name.encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def modules_of_tests() -> dict[str, Path]:
    """Return the modules of tests by name, slowest first."""
    slow = list(SHARES)
    paths = sorted(
        (ROOT / "tests/gpu").glob("test_*.py"),
        key=lambda path: (slow.index(path.stem) if path.stem in slow else len(slow), path.stem),
    )
    return {path.stem: path for path in paths}


def runs_of_tests(bundles: Path, launched: Path, modules: Sequence[str] = (), select: str = "") -> list[Run]:
    """List the modules of tests, slowest first and in shares.

    `modules` names some of them; without, all are listed. `select` is pytest's expression for tests, empty for all.
    """
    runs = []
    chosen = ("-k", f"({select}) or {JUDGE}") if select else ()
    for path in modules_of_tests().values():
        if modules and path.stem not in modules:
            continue
        command = (*_pytest(), str(path.relative_to(ROOT)), *chosen)
        count = SHARES.get(path.stem, 1)
        if path.stem == "test_jit_equality":
            continue
        for number in range(1, count + 1):
            share = (("NOJIT_TEST_SHARE", f"{number}/{count}"), ("NOJIT_TEST_LAUNCHED", str(launched)))
            name = path.stem if count == 1 else f"{path.stem} {number}/{count}"
            runs.append(Run(name, command, (*_bundles(bundles), *(share if count > 1 else ()))))
    return runs


def judges(bundles: Path, launched: Path, modules: Sequence[str] = ()) -> list[Run]:
    """List the tests that find variants which no share of a module launched; `modules` as for `runs_of_tests`."""
    given = (*_bundles(bundles), ("NOJIT_TEST_LAUNCHED", str(launched)))
    shared = [
        ROOT / f"tests/gpu/{module}.py"
        for module, count in SHARES.items()
        if count > 1 and (not modules or module in modules)
    ]
    return [
        Run(f"{path.stem} variants", (*_pytest(), f"{path.relative_to(ROOT)}::{JUDGE}"), given)
        for path in shared
        if JUDGE in path.read_text()
    ]


def _bundles(bundles: Path) -> tuple[tuple[str, str], ...]:
    return (("NOJIT_TEST_BUNDLES", str(bundles)),)


def ahead(built: Path | None, launched: Path, families: Sequence[str] = TESTED) -> list[Run]:
    """List the runs before the comparisons: with a prebuilt bundle, compile Triton's side on every core."""
    if built is None:
        return []
    return [
        Run(
            "equality compile", (sys.executable, "-m", "tests.gpu.compile_ahead", *families), _equality(built, launched)
        )
    ]


def equality(built: Path | None, launched: Path, families: Sequence[str] = TESTED) -> list[Run]:
    """List the comparisons with Triton's launcher, one per family; with a prebuilt bundle, large ones in parts."""
    runs = []
    for family in families:
        count = PARTS.get(family, 1) if built else 1
        for part in range(count):
            name = f"equality {family}" if count == 1 else f"equality {family} {part + 1}/{count}"
            test = f"test_launches_equal_those_of_tritons_own_launcher[{family}-{part}]"
            runs.append(Run(name, (*_pytest(), f"{EQUALITY}::{test}"), _equality(built, launched)))
    return runs


def compared(built: Path | None, launched: Path, families: Sequence[str] = TESTED) -> list[Run]:
    """List the test that finds variants which no comparison covered."""
    command = (*_pytest(), *(f"{EQUALITY}::test_every_variant_was_compared[{family}]" for family in families))
    return [Run("equality variants", command, _equality(built, launched))]


def _equality(built: Path | None, launched: Path) -> tuple[tuple[str, str], ...]:
    left = ("NOJIT_TEST_LAUNCHED", str(launched))
    if built is None:
        return (left, ("NOJIT_TEST_PROFILE", "core"))
    return (left, ("NOJIT_TEST_PROFILE", "full"), ("NOJIT_TEST_BUILT", str(built.resolve())))


def check(bundles: Path, families: Sequence[str] = TESTED) -> list[Run]:
    """List the runs under compute-sanitizer, without torch's memory cache, which would hide out-of-bounds accesses."""
    # a process that aborts prints the stacks of its threads
    given = (("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"), ("PYTHONFAULTHANDLER", "1"))
    sample = (sys.executable, "benchmarks/prove.py", str(bundles), "--part", "sample")
    # the runtime queries one parameter past the last, to see that it does not exist; C++ names are torch's kernels
    sanitizer = ("compute-sanitizer", "--report-api-errors", "no", "--kernel-name-exclude", "kns=_Z", "--tool")
    # races.py filters false reports out of racecheck's output
    judged = (sys.executable, "benchmarks/races.py", str(bundles), "--run", *sanitizer, "racecheck", *sample)
    checked = (*sanitizer, "memcheck", "--error-exitcode", "9", *sample)
    return [
        Run(f"{tool} {family}", (*command, "--families", family), given)
        for tool, command in (("memcheck", checked), ("racecheck", judged))
        for family in families
    ]


def served(seconds: float, bytecode: Path) -> list[Run]:
    """List the checks of recorded and served programs, which end within `seconds` each and share a folder for bytecode."""
    script = (sys.executable, "benchmarks/served.py", "--budget", f"{seconds:.0f}", "--program")
    given = (("PYTHONPYCACHEPREFIX", str(bytecode)),)
    return [Run(f"served {program.name}", (*script, program.name), given) for program in PROGRAMS]


def bench(bundles: Path, out: Path) -> list[Run]:
    """List the benchmarks; that of recorded programs also writes its figures to the folder `out`."""
    scripts = [*FAMILIES, "operators"]
    runs = [
        Run(f"bench {name}", (sys.executable, f"benchmarks/{name}.py", str(bundles)))
        for name in scripts
        if (ROOT / f"benchmarks/{name}.py").exists()
    ]
    first = (sys.executable, "benchmarks/first_launch.py", str(bundles), "--repeat", "5")
    recorded = (sys.executable, "benchmarks/record_serve.py", "--repeat", "5", "--out", str(out.resolve()))
    return [*runs, Run("bench first_launch", first), Run("bench record_serve", recorded)]


def _pytest() -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Limits:
    """Time limits of runs."""

    seconds: float
    """For each run."""
    end: float
    """When all runs must have ended, on the monotonic clock."""

    def left(self) -> float:
        """Return how long a run that starts now may take."""
        return min(self.seconds, self.end - time.monotonic())


def follow(run: Run, record: Record, limits: Limits) -> None:
    """Run a command to its end or its limit, and record its status."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{re.sub(r'[ /]', '_', run.name)}.log"
        started = time.monotonic()
        with path.open("w") as log:
            status = _status(run, log, limits.left())
        text = path.read_text(errors="replace")
        last = next((line for line in reversed(text.split("\n")) if line.strip()), "")
        failed = tuple(re.findall(r"^(?:FAILED|ERROR) (\S.*)$", text, re.MULTILINE))
        skipped = status in ALL_SKIPPED_STATUSES and ALL_SKIPPED.match(last) is not None
        record.add(Outcome(run.name, status, time.monotonic() - started, last[:120], failed, skipped), path)


def _status(run: Run, log: TextIO, seconds: float) -> int | None:
    if seconds < LEAST_SECONDS:
        print("left out: no time", file=log)
        return None
    try:
        return subprocess.run(
            run.command, cwd=ROOT, env=os.environ | dict(run.environment), stdout=log, stderr=log, timeout=seconds,
            check=False,
        ).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        print(error, file=log)
        return 127


def side_by_side(runs: Iterable[Run], record: Record, limits: Limits, processes: int, devices: int = 1) -> None:
    """Run the commands that are not done, `processes` at a time; with several devices each sees one, in turn."""
    left = [
        run if devices == 1 or run.name in OF_ALL_DEVICES else _on(number % devices, run)
        for number, run in enumerate(record.left(runs))
    ]
    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(lambda run: follow(run, record, limits), left))


def _on(device: int, run: Run) -> Run:
    return replace(run, environment=(*run.environment, ("CUDA_VISIBLE_DEVICES", str(device))))


def main(words: Sequence[str] | None = None) -> int:
    """Run the requested steps; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(STEPS))
    parser.add_argument("--processes", type=int, default=12, help="number of parallel processes for tests and checks")
    parser.add_argument("--limit", type=float, default=240.0, help="time limit of each run, in seconds")
    parser.add_argument("--budget", type=float, default=float("inf"), help="time limit of all runs, in seconds")
    parser.add_argument("--devices", type=int, default=1, help="number of GPUs to spread tests and checks over")
    parser.add_argument("--families", default=",".join(TESTED), help="kernel families for the steps equality and check")
    parser.add_argument("--modules", default="", help="modules of tests/gpu for the step tests")
    parser.add_argument("--select", default="", help="tests of these modules, as pytest's -k takes them")
    parser.add_argument(
        "--built", type=Path, help="a folder with the full profile, built by the Triton of this machine"
    )
    parser.add_argument("--earlier", type=Path, help="results.json of an earlier call to continue")
    given = parser.parse_args(words)
    asked = given.only.split(",")
    if unknown := set(asked) - set(STEPS):
        parser.error(f"--only: expected some of {', '.join(STEPS)}, got {', '.join(sorted(unknown))}")
    if given.devices < 1:
        parser.error(f"--devices: expected at least 1, got {given.devices}")
    families = given.families.split(",")
    if unknown := set(families) - set(TESTED):
        parser.error(f"--families: expected some of {', '.join(TESTED)}, got {', '.join(sorted(unknown))}")
    modules = given.modules.split(",") if given.modules else []
    if unknown := set(modules) - set(modules_of_tests()):
        known = ", ".join(modules_of_tests())
        parser.error(f"--modules: expected some of {known}, got {', '.join(sorted(unknown))}")
    limits = Limits(given.limit, time.monotonic() + given.budget)
    bundles = given.bundles.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    record = Record(given.out, digest_of(bundles))
    (given.out / "logs.zip").unlink(missing_ok=True)
    if given.earlier is not None:
        record.take_over(given.earlier)
    if "tests" in asked:
        listed = runs_of_tests(bundles, record.launched, modules, given.select)
        side_by_side(listed, record, limits, given.processes, given.devices)
        side_by_side(judges(bundles, record.launched, modules), record, limits, given.processes, given.devices)
    for step, runs, processes, devices in (
        ("equality", ahead(given.built, record.launched, families), 1, 1),
        ("equality", equality(given.built, record.launched, families), 12 if given.built else 3, given.devices),
        ("equality", compared(given.built, record.launched, families), 1, 1),
        ("check", check(bundles, families), 2, given.devices),
        ("served", served(given.limit - LEAST_SECONDS, record.bytecode), 6, given.devices),
        ("bench", bench(bundles, given.out), 1, 1),
    ):
        if step in asked:
            side_by_side(runs, record, limits, processes * devices, devices)
    outcomes = record.outcomes.values()
    bad = [outcome.name for outcome in outcomes if outcome.bad]
    skipped = [outcome.name for outcome in outcomes if outcome.skipped]
    print(f"{len(outcomes)} runs; skipped: {', '.join(skipped) or 'none'}; failed: {', '.join(bad) or 'none'}")
    # without any device, tests are skipped too
    return 0 if not bad and any(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
