"""Check recorded and served programs on a GPU: the same bits as Triton's JIT, nothing compiled, no file written.

    python benchmarks/served.py [--out FOLDER] [--program NAME,...] [--processes 6] [--budget 540] [--rehearse]

For each program: record it; run it again with the JIT; record it with ``--fake`` and compare the recordings; build; run it from the
bundle, with Triton and as if Triton was not installed. A line for each check says PASS, FAILED or SKIPPED, and a failure stops no
other check. Outputs that differ between two runs of the JIT are not compared, and are counted in the line; a program without any other
fails. So does a program for which no time is left. Modules are compiled to bytecode once, in ``PYTHONPYCACHEPREFIX`` or a new folder.

With ``--rehearse``, on a machine without a GPU, recordings are made with ``--fake``, and what needs a GPU is skipped, except for the
program `launches`, which runs on the tests' driver. FOLDER gets ``served.json``, and ``served.log`` with the output of each command.

Programs whose packages are missing are skipped: they need liger-kernel, transformers, flash-linear-attention, fla-core, einops,
sageattention 1 and gemlite from PyPI, and the folders ``mamba_ssm`` and ``attorch`` of their repositories on ``PYTHONPATH``.
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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from processes import ROOT, driver_environment, nojit, run

__all__ = ["PROGRAMS", "Program"]

EXAMPLES, BENCHMARKS = ROOT / "examples/record_serve", ROOT / "benchmarks"
PASS, FAILED, SKIPPED = "PASS", "FAILED", "SKIPPED"
# with less time left, no command starts
LEAST_SECONDS = 5.0
DIGEST = re.compile("[0-9a-f]{32,}")
# every process of a program runs this first: it hides Triton, and writes the served launches at the end
WATCH = """
import atexit, importlib.util, json, os, sys

if "NOJIT_BENCH_HIDE" in os.environ:
    spec = importlib.util.spec_from_file_location("nojit_bench_hide", os.environ["NOJIT_BENCH_HIDE"])
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])


def _write():
    observe = sys.modules.get("nojit.runtime")
    if observe is not None and "nojit.runtime.serve.session" in sys.modules:
        served = observe.counters().served
        version = getattr(sys.modules.get("triton"), "__version__", "")
        found = [sum(each.launches for each in served), sum(each.misses for each in served), version]
        with open(os.environ["NOJIT_BENCH_COUNTS"], "a") as file:
            file.write(json.dumps(found) + "\\n")


if "NOJIT_BENCH_COUNTS" in os.environ:
    atexit.register(_write)
"""


@dataclass(frozen=True, slots=True)
class Program:
    """A program to record and serve."""

    name: str
    path: Path
    needs: tuple[str, ...] = ()
    """Packages that it imports."""
    words: tuple[str, ...] = ()
    served: tuple[str, ...] = ()
    """More words of the served program."""
    ranks: bool = False
    """Whether it runs under torchrun."""
    fake: bool = True
    """Whether it can be recorded without a GPU."""
    graphs: bool = False
    """Whether torch keeps graphs of it in a cache."""
    preload: bool = False
    """Whether its variants are loaded before the first launch."""
    alone: bool = True
    """Whether it can run without Triton."""

    def command(self, *words: str, gpus: int = 1) -> list[str]:
        """Return its command line."""
        start = [sys.executable, "-W", "ignore"]
        if self.preload:
            # of variants that are loaded during a capture
            start += ["-W", "error::RuntimeWarning"]
        if self.ranks:
            count = str(min(2, max(1, gpus)))
            start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count]
        return [*start, str(self.path), *self.words, *words]


def _third_party(name: str, *needs: str) -> Program:
    return Program(name, BENCHMARKS / f"programs/{name}.py", needs)


PROGRAMS = (
    Program("launches", BENCHMARKS / "record_serve_child.py", words=("record",), fake=False),
    Program("program", EXAMPLES / "program.py"),
    Program("kinds", EXAMPLES / "kinds.py"),
    Program("ranks", EXAMPLES / "ranks.py", ranks=True),
    Program("compiled", EXAMPLES / "compiled.py", graphs=True),
    Program("compiled forward", EXAMPLES / "compiled.py", words=("--forward",), graphs=True),
    Program("optimizer", BENCHMARKS / "programs/optimizer.py", graphs=True),
    Program("graph", BENCHMARKS / "programs/graph.py", served=("--cold",), fake=False, preload=True),
    Program("liger", EXAMPLES / "liger.py", ("liger_kernel", "transformers")),
    _third_party("liger_ops", "liger_kernel"),
    _third_party("fla_ops", "fla", "einops"),
    _third_party("mamba_ops", "mamba_ssm", "einops"),
    _third_party("attorch_ops", "attorch"),
    _third_party("sage_attention", "sageattention"),
    _third_party("gemlite_ops", "gemlite"),
)


class Report:
    """The checks' results, printed at once.

    Args:
        out: folder for the log and the results; None for neither.
    """

    def __init__(self, out: Path | None) -> None:
        self._out = out
        self._lock = threading.Lock()
        self.found: list[tuple[str, str, str]] = []
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            (out / "served.log").unlink(missing_ok=True)

    def add(self, status: str, check: str, text: str = "") -> None:
        """Print a check's line."""
        with self._lock:
            self.found.append((status, check, text))
            print(f"{status} {check}{': ' if text else ''}{' '.join(text.split())[:400]}", flush=True)
            if self._out is not None:
                results = [{"status": each[0], "check": each[1], "text": each[2]} for each in self.found]
                (self._out / "served.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    def log(self, words: Sequence[str], text: str) -> None:
        """Write a command and its output."""
        if self._out is not None:
            with self._lock, (self._out / "served.log").open("a", encoding="utf-8") as file:
                file.write(f"$ {' '.join(words)}\n{text[-20_000:]}\n\n")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where programs run."""

    arch: str
    gpus: int
    environment: Mapping[str, str]
    end: float
    """When all must have ended, on the monotonic clock."""
    rehearsal: bool


class Failure(Exception):  # noqa: N818 - an outcome of a check
    """Why a check failed."""


class Left(Exception):  # noqa: N818 - an outcome of a check
    """Why a check is skipped."""


class Checks:
    """The checks of one program.

    Args:
        program: the program.
        machine: where it runs.
        folder: for recordings, bundles and caches.
        report: gets a line for each check.
    """

    def __init__(self, program: Program, machine: Machine, folder: Path, report: Report) -> None:
        self._program, self._machine, self._folder, self._report = program, machine, folder, report
        self._on_driver = machine.rehearsal and program.name == "launches"
        self._simulated = machine.rehearsal and not self._on_driver
        # the outputs of the recorded run, and the names of those that the JIT repeats
        self._recorded: dict[str, str] = {}
        self._stable: set[str] = set()
        self._own: set[str] = set()

    def run(self) -> None:
        """Make the checks, in order."""
        program = self._program
        missing = [each for each in program.needs if find_spec(each) is None]
        if missing:
            self._report.add(SKIPPED, program.name, f"not installed: {', '.join(missing)}")
            return
        if not self._machine.gpus or (self._simulated and not program.fake):
            self._report.add(SKIPPED, program.name, "needs a GPU")
            return
        recorded = self._check("is recorded", self._record)
        self._check("is recorded without a GPU as with one", self._compare)
        if not recorded:
            return
        self._check("gives the same bits in another run of the JIT", self._repeat)
        if self._check("is built", self._build):
            self._check("is covered", self._cover)
            self._check("is served", lambda: self._serve(hidden=False))
            if program.alone:
                self._check("is served without Triton", lambda: self._serve(hidden=True))

    def _check(self, what: str, check: Any) -> bool:
        name = f"{self._program.name} {what}"
        try:
            self._report.add(PASS, name, check() or "")
        except Left as left:
            self._report.add(SKIPPED, name, str(left))
            return False
        except Failure as failure:
            self._report.add(FAILED, name, str(failure))
            return False
        except Exception as error:  # noqa: BLE001 - one failure stops no other check
            self._report.add(FAILED, name, f"{type(error).__name__}: {error}")
            return False
        return True

    def _call(self, words: Sequence[Any], **variables: str) -> tuple[str, str]:
        """Run a command; return its standard output and error."""
        spelled = [*map(str, words)]
        left = self._machine.end - time.monotonic()
        if left < LEAST_SECONDS:
            raise Failure("no time is left")
        environment = {**self._machine.environment, **self._caches(), **variables}
        try:
            ended = run(spelled, folder=self._folder, environment=environment, seconds=left)
        except subprocess.TimeoutExpired as error:
            self._report.log(spelled, _text(error.stdout) + _text(error.stderr))
            raise Failure(f"{' '.join(spelled)[:200]} took longer than {left:.0f} s") from None
        self._report.log(spelled, ended.stdout + ended.stderr)
        if ended.returncode:
            print(f"$ {' '.join(spelled)}\n{(ended.stdout + ended.stderr)[-3000:]}", file=sys.stderr, flush=True)
            lines = [line for line in ended.stderr.splitlines() if line.strip()] or ["no output"]
            raise Failure(f"exit {ended.returncode}: {lines[-1]}")
        return ended.stdout, ended.stderr

    def _caches(self) -> dict[str, str]:
        return {
            "TRITON_CACHE_DIR": str(self._folder / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(self._folder / "inductor"),
            "NOJIT_CACHE_DIR": str(self._folder / "nojit"),
        }

    def _live(self, *words: str) -> list[str]:
        quiet = ["--no-digest"] if self._simulated else []
        return self._program.command(*words, *quiet, gpus=self._machine.gpus)

    def _record(self) -> str:
        fake = ["--fake", self._machine.arch] if self._simulated else []
        words = [*nojit("record", "-o", self._folder / "live.nojitrec", *fake), "--", *self._live()]
        out, summary = self._call(words)
        self._recorded = _outputs(out)
        self._stable = set(self._recorded)
        told = next((line for line in summary.splitlines() if "specialization" in line and ".nojitrec:" in line), "")
        problems = [line for line in summary.splitlines() if line.startswith("not recorded")]
        if problems:
            raise Failure("; ".join(problems))
        return told.partition(": ")[2]

    def _compare(self) -> str:
        if not self._program.fake:
            raise Left("this program cannot run without a GPU")
        fake, live = self._folder / "fake.nojitrec", self._folder / "live.nojitrec"
        words = [*nojit("record", "-o", fake, "--fake", self._machine.arch), "--"]
        self._call([*words, *self._program.command("--no-digest", gpus=self._machine.gpus)], CUDA_VISIBLE_DEVICES="")
        if not live.exists():
            raise Left("there is no recording of a GPU")
        out, _ = self._call(nojit("diff", live, fake, "--json", "--ignore-tuning"))
        differences = [
            f"{each['kind']} {each['kernel']} {each['what'][:120]}: {each['before']} -> {each['after']}"
            for each in json.loads(out)["differences"]
        ]
        if differences:
            raise Failure(f"{len(differences)} differences: {' | '.join(differences[:3])}")
        return ""

    def _repeat(self) -> str:
        if self._simulated:
            raise Left("needs a GPU")
        home = self._folder / "home"
        again = _outputs(self._call(self._live(), **_homes(home))[0])
        # files that the program itself writes
        self._own = {*_listing(home)}
        self._stable = {name for name, digest in self._recorded.items() if again.get(name) == digest}
        lost = sorted(set(self._recorded) - self._stable)
        if not self._stable and not self._on_driver:
            raise Failure(f"expected an output with the same bits in both runs, got none of {len(self._recorded)}")
        return f"except {len(lost)} of {len(self._recorded)}: {', '.join(lost)}" if lost else ""

    def _build(self) -> str:
        out, _ = self._call(
            nojit("build", self._folder / "live.nojitrec", "--out", self._folder / "bundles", "-j", "2")
        )
        return next((line for line in reversed(out.splitlines()) if line.strip()), "")

    def _cover(self) -> str:
        self._call(nojit("coverage", self._folder / "live.nojitrec", self._folder / "bundles"))
        return ""

    def _serve(self, *, hidden: bool) -> str:
        if self._simulated:
            raise Left("needs a GPU")
        kind = "alone" if hidden else "beside"
        home, counts = self._folder / f"home-{kind}", self._folder / f"counts-{kind}"
        watched = {
            **_homes(home),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TRITON_CACHE_DIR": str(home / "triton"),
            "NOJIT_BENCH_COUNTS": str(counts),
            **({"NOJIT_BENCH_HIDE": str(ROOT / "tests/support/hidden_triton.py")} if hidden else {}),
            **({} if self._program.graphs else {"TORCHINDUCTOR_CACHE_DIR": str(home / "inductor")}),
        }
        graphs = self._folder / "inductor"
        before = _listing(graphs)
        preload = ["--preload"] if self._program.preload else []
        words = [sys.executable, "-m", "nojit.runtime.serve", "--bundle", self._folder / "bundles", "--miss", "error"]
        out, _ = self._call([*words, *preload, "--", *self._live(*self._program.served)], **watched)
        served = _outputs(out)
        wrong = sorted(name for name, digest in self._recorded.items() if served.get(name) != digest)
        if failed := [name for name in wrong if name in self._stable]:
            raise Failure(f"{len(failed)} of {len(self._recorded)} outputs differ: {', '.join(failed[:6])}")
        launches, misses, versions = _counted(counts)
        if misses or not launches:
            raise Failure(f"expected launches and no miss, got {launches} launches and {misses} misses")
        if hidden != all(each.endswith("nojit") for each in versions):
            raise Failure(f"expected {'the stand-in for Triton' if hidden else 'Triton'}, got {', '.join(versions)}")
        written = sorted({*_listing(home)} - self._own | {*_listing(graphs).items()} - {*before.items()}, key=str)
        if written:
            raise Failure(f"{len(written)} files were written: {', '.join(map(str, written[:6]))}")
        if not self._stable and not self._on_driver:
            raise Left(f"{launches} launches and no miss, but no output to compare: the JIT repeats none")
        compared = f", {len(wrong)} not reproducible" if wrong else ""
        return f"{launches} launches, {len(self._recorded)} outputs{compared}"


def _homes(folder: Path) -> dict[str, str]:
    """Make an empty folder, and return variables that make it the user's home; CUDA keeps no cache there."""
    folder.mkdir()
    names = {"HOME": folder, "XDG_CACHE_HOME": folder / "cache", "TMPDIR": folder}
    return {**{name: str(path) for name, path in names.items()}, "CUDA_CACHE_DISABLE": "1"}


def _text(printed: bytes | str | None) -> str:
    """Return what a command printed before its time limit."""
    return printed.decode(errors="replace") if isinstance(printed, bytes) else printed or ""


def _outputs(text: str) -> dict[str, str]:
    """Return the digests that a program printed, by name: each is the last word of its line."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return {" ".join(words[:-1]): words[-1] for words in lines if DIGEST.fullmatch(words[-1])}


def _counted(path: Path) -> tuple[int, int, list[str]]:
    """Return launches and misses of all processes, and the versions of Triton that launched."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    versions = sorted({each[2] for each in found if each[0]})
    return sum(each[0] for each in found), sum(each[1] for each in found), versions


def _listing(folder: Path) -> dict[str, str]:
    """Return a digest of each file in a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _machine(folder: Path, *, rehearse: bool, budget: float) -> Machine:
    """Look at this machine, and prepare the environment of programs."""
    watch = folder / "watch"
    watch.mkdir()
    (watch / "sitecustomize.py").write_text(WATCH, encoding="utf-8")
    others = ("NOJIT_", "TRITON_", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    paths = [str(watch), environment.get("PYTHONPATH", "")]
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        # recorded processes compile modules once; served ones read them there, and may write no file
        "PYTHONPYCACHEPREFIX": environment.get("PYTHONPYCACHEPREFIX", str(folder / "bytecode")),
        "TRITON_DEFAULT_FP_FUSION": "1",
        # matrix products of torch need it for equal bits
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    end = time.monotonic() + budget
    if rehearse:
        environment |= driver_environment(folder)
        return Machine("sm_90", 1, environment, end, rehearsal=True)
    code = (
        "import torch; n = torch.cuda.device_count(); print(n, *(torch.cuda.get_device_capability() if n else (0, 0)))"
    )
    count, major, minor = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    return Machine(f"sm_{major}{minor}", int(count), environment, end, rehearsal=False)


def _summary(found: Sequence[tuple[str, str, str]], seconds: float) -> Iterator[str]:
    counts = {status: sum(each[0] == status for each in found) for status in (PASS, FAILED, SKIPPED)}
    if counts[SKIPPED] and not counts[PASS] and not counts[FAILED]:
        # as pytest says it
        yield f"{counts[SKIPPED]} skipped in {seconds:.1f}s"
        return
    yield f"{counts[PASS]} passed, {counts[FAILED]} failed, {counts[SKIPPED]} skipped in {seconds:.1f}s"


def main() -> int:
    """Print a line for each check, and their number."""
    names = [program.name for program in PROGRAMS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, help="folder for served.json and served.log")
    parser.add_argument("--program", default=",".join(names), help=f"some of {', '.join(names)}")
    parser.add_argument("--processes", type=int, default=6, help="programs at a time")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds for everything")
    parser.add_argument("--rehearse", action="store_true", help="without a GPU")
    given = parser.parse_args()
    asked = given.program.split(",")
    if unknown := set(asked) - set(names):
        parser.error(f"--program: expected some of {', '.join(names)}, got {', '.join(sorted(unknown))}")
    started, report = time.monotonic(), Report(given.out)
    with tempfile.TemporaryDirectory(prefix="nojit-served-", ignore_cleanup_errors=True) as name:
        machine = _machine(Path(name), rehearse=given.rehearse, budget=given.budget)
        checks = []
        for program in PROGRAMS:
            if program.name in asked:
                folder = Path(name, program.name.replace(" ", "-"))
                folder.mkdir()
                checks.append(Checks(program, machine, folder, report))
        with ThreadPoolExecutor(given.processes) as pool:
            list(pool.map(Checks.run, checks))
    for line in _summary(report.found, time.monotonic() - started):
        print(line)
    return 1 if any(status == FAILED for status, _, _ in report.found) else 0


if __name__ == "__main__":
    sys.exit(main())
