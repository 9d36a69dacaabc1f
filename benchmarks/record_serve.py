"""Measure recorded and served programs beside Triton's JIT, and compare them with the bars. Needs a GPU and Triton.

    python benchmarks/record_serve.py [--out FOLDER] [--repeat 7] [--rounds 40] [--launches 200] [--fake]
                                      [--part launch,recording,first,compiled]

- ``first``: the first ``fn[grid](...)`` of a process, from the call to its return, served with Triton and without, and by the JIT with
  an empty and a full cache. Each figure is the median over new processes; imports are not part of it.
- ``compiled``: the first call of a module of torch.compile, with torch's graph cache full, served with Triton and without, and by the JIT
  with a full cache. Each figure is the median over new processes. It needs a GPU.
- ``launch``: a served launch beside nojit's own ``kernel[grid](...)``, in turns in one process.
- ``recording``: what a recording adds to a launch of the JIT, plain and autotuned, and to a program of kernels that take 10 ms each.

With ``--fake`` the tests' driver replaces the GPU: launches take the host's CPU time alone, and bars are shown but not judged. FOLDER gets
``record-serve.json``, written after each part. Exits 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from processes import ROOT, driver_environment, nojit

CHILD = ROOT / "benchmarks/record_serve_child.py"
# those that take longest come last
PARTS = ("launch", "recording", "first", "compiled")
NEED_GPU = {"compiled"}
COLD, WARM, SERVED, ALONE = "JIT, empty cache", "JIT, full cache", "served", "served, no Triton"
# the share of a launch that a recording may add to a kernel of 10 ms
KERNEL_US = 10_000.0
# a recording writes at the first, second, fourth, ... launch: so many launches make that a small part
RECORDED = 10


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, and its bar."""

    name: str
    unit: str
    median: float
    best: float | None = None
    bar: float | None = None
    at_least: bool = False
    """Whether the bar is the least, not the most."""

    @property
    def holds(self) -> bool:
        """Whether the median keeps the bar."""
        return self.bar is None or (self.median >= self.bar if self.at_least else self.median <= self.bar)

    def line(self, *, judged: bool) -> str:
        """Return the figure as a line of the table."""
        best = "" if self.best is None else f"best {self.best:10.3f}"
        bar = "" if self.bar is None else f"bar {'>=' if self.at_least else '<='} {self.bar:g}"
        verdict = ("holds" if self.holds else "MISSED") if judged and bar else ""
        return f"{self.name:58s} {self.median:10.3f} {self.unit:3s} {best:15s} {bar:10s} {verdict}".rstrip()


class Bench:
    """Processes that measure.

    Args:
        folder: for recordings, bundles and caches.
        fake: whether the tests' driver replaces the GPU.
    """

    def __init__(self, folder: Path, *, fake: bool) -> None:
        self._folder = folder
        self._caches = 0
        environment = {**os.environ, "TRITON_DEFAULT_FP_FUSION": "1", "PYTHONWARNINGS": "ignore"}
        for name in ("NOJIT_MISS", "NOJIT_SERVE", "NOJIT_RECORD", "TRITON_INTERPRET"):
            environment.pop(name, None)
        environment["NOJIT_CACHE_DIR"] = str(folder / "nojit-cache")
        if fake:
            environment |= driver_environment(folder)
        # the graph cache of torch.compile
        self._environment = environment | {"TORCHINDUCTOR_CACHE_DIR": str(folder / "graphs")}
        self.bundles = self._build("record")

    def _build(self, work: str) -> Path:
        """Record a process and build its bundle; return the folder."""
        recording, bundles = self._folder / f"{work}.nojitrec", self._folder / f"{work}-artifacts"
        self._run([*nojit("record", "-o", recording), "--", sys.executable, CHILD, work])
        self._run(nojit("build", recording, "--out", bundles))
        return bundles

    def _run(self, words: Sequence[Any], cache: str = "full") -> str:
        environment = self._environment | {"TRITON_CACHE_DIR": str(self._folder / cache)}
        ended = subprocess.run([*map(str, words)], check=False, cwd=ROOT, env=environment, capture_output=True)
        if ended.returncode:
            sys.exit(f"{' '.join(map(str, words))} exits {ended.returncode}: {ended.stderr.decode()[-3000:]}")
        return ended.stdout.decode()

    def child(self, work: str, *, bundles: Path | None = None, cache: str = "full", **given: object) -> dict[str, Any]:
        """Run a process that measures, served from bundles if there are any, and return what it found."""
        words = [sys.executable, CHILD, work, *(f"{name}={value}" for name, value in given.items())]
        if bundles is not None:
            words = [sys.executable, "-m", "nojit.runtime.serve", "--bundle", bundles, "--", *words]
        found: dict[str, Any] = json.loads(self._run(words, cache).splitlines()[-1])
        return found

    def first(self, repeat: int) -> Iterator[Figure]:
        """Measure first launches."""
        times: dict[str, list[dict[str, Any]]] = {way: [] for way in (COLD, WARM, SERVED, ALONE)}
        for number in range(repeat + 1):
            for way, found in times.items():
                served = way in {SERVED, ALONE}
                cache = "full" if way == WARM else f"{'unused' if served else 'empty'}-{number}"
                figures = self.child("first", bundles=self.bundles if served else None, cache=cache, way=way)
                if served and (self._folder / cache).exists():
                    sys.exit(f"expected no file of a served process, found {self._folder / cache}")
                # the first process compiles modules to bytecode
                if number:
                    found.append(figures)
        medians = {}
        for way, found in times.items():
            for step, what in (
                ("first_ms", "first call"),
                ("done_ms", "first call and its kernel"),
                ("import_ms", "imports"),
            ):
                values = [each[step] for each in found]
                medians[way, step] = statistics.median(values)
                yield Figure(f"{what}: {way}", "ms", medians[way, step], min(values))
        for way in (SERVED, ALONE):
            for jit, bar in ((COLD, 100.0), (WARM, 20.0)):
                ratio = medians[jit, "first_ms"] / medians[way, "first_ms"]
                yield Figure(f"first call: {jit} / {way}", "x", ratio, bar=bar, at_least=True)

    def compiled(self, repeat: int) -> Iterator[Figure]:
        """Measure first calls of a compiled module."""
        bundles = self._build("compiled")
        times: dict[str, list[float]] = {way: [] for way in (WARM, SERVED, ALONE)}
        for number in range(repeat + 1):
            for way, found in times.items():
                figures = self.child("compiled") if way == WARM else self.child("compiled", bundles=bundles, way=way)
                print(f"  {number} {way}: {figures['first_ms']:.0f} ms", file=sys.stderr, flush=True)
                # the first process of the JIT fills its caches
                if number:
                    found.append(figures["first_ms"])
        for way, found in times.items():
            yield Figure(f"first call of a compiled module: {way}", "ms", statistics.median(found), min(found))
        for way in (SERVED, ALONE):
            above = statistics.median(times[way]) - statistics.median(times[WARM])
            yield Figure(f"first call of a compiled module: {way} - {WARM}", "ms", above, bar=100.0)

    def launch(self, rounds: int, launches: int) -> Iterator[Figure]:
        """Measure launches, with Triton and without."""
        for way in (SERVED, ALONE):
            found = self.child(
                "launch",
                bundles=self.bundles,
                cache="unused",
                way=way,
                bundle=self.bundles,
                rounds=rounds,
                launches=launches,
            )
            for count in ("4", "12", "tuned"):
                for contender, times in found[count].items():
                    what = f"launch, {count if count == 'tuned' else f'{count} arguments'}: "
                    name = {"served": way, "nojit": f"nojit's own, beside {way}"}[contender]
                    yield Figure(what + name, "us", statistics.median(times), min(times))
                if "nojit" in found[count]:
                    pairs = zip(found[count]["served"], found[count]["nojit"], strict=True)
                    ratio = statistics.median(one / other for one, other in pairs)
                    yield Figure(f"launch, {count} arguments: {way} / nojit's own", "x", ratio, bar=1.1)

    def recording(self, rounds: int, launches: int) -> Iterator[Figure]:
        """Measure what recordings add."""
        found = self.child("recording", rounds=rounds, launches=launches * RECORDED, folder=self._folder)
        worst = 0.0
        for name in ("4", "12", "tuned"):
            plain, recorded = found[name]["plain"], found[name]["recorded"]
            what = "autotuned" if name == "tuned" else f"{name} arguments"
            yield Figure(f"launch of the JIT, {what}", "us", statistics.median(plain), min(plain))
            added = [one - other for one, other in zip(recorded, plain, strict=True)]
            worst = max(worst, statistics.median(added))
            yield Figure(
                f"a recording adds, {what}", "us", statistics.median(added), min(recorded) - min(plain), bar=2.0
            )
        yield Figure("a recording's share of kernels of 10 ms, computed", "%", 100 * worst / KERNEL_US, bar=1.0)
        if "spin" in found:
            plain, recorded = (statistics.median(found["spin"][each]) for each in ("plain", "recorded"))
            yield Figure("a kernel of about 10 ms", "us", plain)
            yield Figure(
                "a recording's share of kernels of 10 ms, measured", "%", 100 * (recorded - plain) / plain, bar=1.0
            )


def _facts(*, fake: bool) -> dict[str, str]:
    """Return what was measured on."""
    from importlib.metadata import version

    code = "import torch; print(torch.cuda.get_device_name())"
    name = "the tests' driver" if fake else subprocess.check_output([sys.executable, "-c", code], text=True).strip()
    versions = {each: version(each) for each in ("triton", "torch")}
    return {"device": name, **versions, "python": sys.version.split()[0]}


def main() -> int:
    """Print the figures with their bars."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeat", type=int, default=7, help="processes of each way")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--launches", type=int, default=200, help="launches in a round")
    parser.add_argument("--part", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--fake", action="store_true", help="the tests' driver: no GPU is needed")
    given = parser.parse_args()
    parts = given.part.split(",") if given.part else [each for each in PARTS if each not in NEED_GPU or not given.fake]
    if given.fake and (needing := NEED_GPU & set(parts)):
        parser.error(f"--fake: expected parts that need no GPU, got {', '.join(needing)}")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--part: expected some of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    facts = _facts(fake=given.fake)
    print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="nojit-bench-") as name:
        bench = Bench(Path(name), fake=given.fake)
        measures = {
            "first": lambda: bench.first(given.repeat),
            "compiled": lambda: bench.compiled(given.repeat),
            "launch": lambda: bench.launch(given.rounds, given.launches),
            "recording": lambda: bench.recording(given.rounds, given.launches),
        }
        for part in parts:
            for figure in measures[part]():
                figures.append(figure)
                print(figure.line(judged=not given.fake), flush=True)
            if given.out:
                given.out.mkdir(parents=True, exist_ok=True)
                text = json.dumps({"facts": facts, "figures": [asdict(each) for each in figures]}, indent=1)
                (given.out / "record-serve.json").write_text(f"{text}\n", encoding="utf-8")
    return 0 if given.fake or all(each.holds for each in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
