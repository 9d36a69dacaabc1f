"""Start the server with each backend, and measure how soon it answers. Needs a GPU; ``--device cpu`` tests the script.

    python examples/inference_server/client.py --bundles artifacts [--out FOLDER] [--rounds 3] [--ways "nojit;torch"]

Each start is a new process with empty caches: HOME, TMPDIR and all caches are in a new folder, whose files are counted at the
end. ``jit, warm cache`` starts with the cache of ``jit, cold cache``. Exits 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shlex
import site
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path

from nojit import kernels, runtime
from nojit.aot.bench.plot import Bar, Chart, Group, svg

SERVER = Path(__file__).with_name("server.py")
COLD, WARM = "jit, cold cache", "jit, warm cache"
WAYS = {"nojit": "nojit", "torch": "torch", COLD: "jit", WARM: "jit"}
FIRST_BAR, READY_BAR_MS = 1.1, 100
SCALES = {
    "ready_ms": "Time to ready",
    "first_ms": "First token of the first request",
    "token_ms": "Each further token, p50",
}


@dataclass(frozen=True)
class Figures:
    """Results of one start; wall time in ms, as a client sees it."""

    way: str
    ready_ms: float
    """From the start of the process to the first healthy answer."""
    first_ms: float
    """To the first token of the first request."""
    steady_ms: float
    """To the first token of later requests: p50."""
    steady_p99_ms: float
    token_ms: float
    """Between two tokens: p50."""
    token_p99_ms: float
    files: int
    """Number of files that the process left in folders that it could write."""


@dataclass(frozen=True)
class Load:
    """The requests to each server."""

    requests: int
    prompt: int
    tokens: int

    def ask(self, port: int) -> tuple[float, list[float]]:
        """Send one request; return the time of the first token, and of each later one, in ms."""
        connection = HTTPConnection("127.0.0.1", port, timeout=600)
        body = json.dumps({"prompt": [1 + each % 250 for each in range(self.prompt)], "max_tokens": self.tokens})
        clocks = [time.perf_counter()]
        connection.request("POST", "/generate", body)
        answer = connection.getresponse()
        lines = []
        while line := answer.readline():
            clocks.append(time.perf_counter())
            lines.append(json.loads(line))
        connection.close()
        if answer.status != 200 or lines[-1] != {"done": True}:
            raise SystemExit(f"expected tokens, got status {answer.status} and {lines[-1:]}")
        times = [1e3 * (after - before) for before, after in pairwise(clocks)]
        # the last line is not a token
        return times[0], times[1:-1]


@contextmanager
def serving(way: str, given: argparse.Namespace, place: Path) -> Iterator[tuple[int, float]]:
    """Run a server; yield its port and the time until it was ready, in ms."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*shlex.split(given.wrap), sys.executable, str(SERVER), f"--backend={WAYS[way]}", f"--port={port}"]
    words += [f"--device={given.device}", f"--warm={given.warm}", *(["--small"] if given.small else [])]
    words += [f"--bundles={given.bundles}"] if given.bundles else []
    words += ["--rehearse"] if given.no_rehearsal else []
    homes = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_HOME", "CUDA_CACHE_PATH", "TORCHINDUCTOR_CACHE_DIR")
    environment = {**os.environ, **dict.fromkeys(homes, str(place)), "PYTHONDONTWRITEBYTECODE": "1"}
    # keep the user's packages importable
    environment["PYTHONUSERBASE"] = site.getuserbase()
    environment.pop("TRITON_CACHE_DIR", None)
    if WAYS[way] != "jit":
        # no Triton, and no compiler in PATH
        words.append("--forbid-triton")
        environment["PATH"] = ""
    began = time.perf_counter()
    process = subprocess.Popen(words, env=environment)
    try:
        while not healthy(port):
            if process.poll() is not None:
                raise SystemExit(f"{way}: the server ended with {process.returncode}")
            time.sleep(0.001)
        yield port, 1e3 * (time.perf_counter() - began)
    finally:
        process.terminate()
        process.wait()


def healthy(port: int) -> bool:
    """Return whether a server is healthy."""
    connection = HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except ConnectionError:
        return False
    finally:
        connection.close()


def measure(way: str, given: argparse.Namespace, place: Path) -> Figures:
    """Start a server once, and send the requests of `given`."""
    before = set(place.rglob("*"))
    load = Load(given.requests, given.prompt, given.tokens)
    with serving(way, given, place) as (port, ready_ms):
        (first_ms, _), *later = (load.ask(port) for _ in range(1 + load.requests))
    steady, tokens = [first for first, _ in later], [each for _, after in later for each in after]
    files = sum(path.is_file() for path in set(place.rglob("*")) - before)
    return Figures(way, ready_ms, first_ms, *percentiles(steady), *percentiles(tokens), files)


def compile_bytecode() -> None:
    """Compile the modules of nojit and of the example to bytecode, as pip does, because servers here cannot write."""
    for folder in (*kernels.__path__, *runtime.__path__, SERVER.parent):
        compileall.compile_dir(folder, quiet=2)


def percentiles(times: list[float]) -> tuple[float, float]:
    """Return p50 and p99."""
    return statistics.median(times), sorted(times)[min(len(times) - 1, len(times) * 99 // 100)]


def median(way: str, rounds: list[Figures]) -> Figures:
    """Return the median of each figure, and the largest number of files."""
    names = [name for name in Figures.__dataclass_fields__ if name.endswith("_ms")]
    middle = {name: statistics.median(getattr(each, name) for each in rounds) for name in names}
    return Figures(way=way, files=max(each.files for each in rounds), **middle)


def verdicts(figures: dict[str, Figures]) -> Iterator[tuple[str, bool]]:
    """Compare nojit's figures with its bars."""
    ours, plain = figures.get("nojit"), figures.get("torch")
    if ours:
        yield f"first token at first <= {FIRST_BAR} x later ones", ours.first_ms <= FIRST_BAR * ours.steady_ms
        yield "no file written", ours.files == 0
    if ours and plain:
        late = ours.ready_ms - plain.ready_ms
        yield f"ready {late:.0f} ms after torch <= {READY_BAR_MS} ms", late <= READY_BAR_MS


def chart(figures: dict[str, Figures], device: str) -> Chart:
    """Return a chart of the figures, each with its own scale."""

    def bar(each: Figures, name: str) -> Bar:
        value = getattr(each, name)
        return Bar(each.way, (("ms", value),), f"{value:,.1f} ms")

    groups = [Group(title, tuple(bar(each, name) for each in figures.values())) for name, title in SCALES.items()]
    return Chart("How soon a language model's server answers", f"ms as a client sees them, {device}", tuple(groups))


def main() -> int:
    """Measure, print, write the results; exit 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles")
    parser.add_argument("--ways", default=";".join(WAYS), help="backends to start, separated by semicolons")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--small", action="store_true", help="serve a toy model, for the CPU")
    parser.add_argument("--rounds", type=int, default=3, help="number of starts of each backend")
    parser.add_argument("--requests", type=int, default=50, help="number of requests after the first")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument(
        "--warm", type=int, default=0, help="servers answer a prompt of this length before they are ready"
    )
    parser.add_argument("--no-rehearsal", action="store_true", help="do not rehearse before the first request")
    parser.add_argument("--wrap", default="", help="command line before the server's, such as bwrap with its options")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    asked = given.ways.split(";")
    if wrong := sorted(set(asked) - WAYS.keys()):
        parser.error(f"--ways: expected {'; '.join(WAYS)}, got {'; '.join(wrong)}")
    if WARM in asked and COLD not in asked:
        parser.error(f"--ways: {WARM!r} needs {COLD!r}, which fills the cache")
    compile_bytecode()
    # start from the cold start's cache
    rounds: dict[str, list[Figures]] = {way: [] for way in WAYS if way in asked}
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as cache:
            for way, made in rounds.items():
                with tempfile.TemporaryDirectory() as fresh:
                    made.append(measure(way, given, Path(cache if way.startswith("jit") else fresh)))
    figures = {way: median(way, made) for way, made in rounds.items()}
    for each in figures.values():
        said = ((name, value) for name, value in asdict(each).items() if name != "way")
        print(f"{each.way}: {', '.join(f'{name} {value:.1f}' for name, value in said)}")
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        table = [asdict(each) for each in figures.values()]
        (given.out / "inference_server.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
        (given.out / "inference_server.svg").write_text(svg(chart(figures, given.device)), encoding="utf-8")
    judged = list(verdicts(figures))
    for bar, kept in judged:
        print(f"{'kept' if kept else 'NOT KEPT'}: {bar}")
    return 0 if all(kept for _, kept in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
