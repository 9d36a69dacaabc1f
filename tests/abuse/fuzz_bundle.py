"""Feed damaged bundles to the runtime until a count or a fault: ``python tests/abuse/fuzz_bundle.py --count 1000000``.

Half of the mutants are sealed: one part is damaged and right lengths and hashes are put around it, so that the checks
behind the hashes are reached. Whatever a mutant is, reading all of it, and using each row without verifying the rest, must
either work or raise a `BundleError`, within a bound of memory. Any other outcome is a fault: the mutant is kept in a file and the exit code is 1.
"""

from __future__ import annotations

import argparse
import collections
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    # run as a script, only this folder is on the path; the package `tests` lies two above it
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from nojit.runtime.errors import BundleError, BundleFormatError

from tests.support.bundles import Parts
from tests.support.hostile import read_everything, small_parts, use_everything
from tests.support.mutation import Mutant, Mutator

Outcomes = collections.Counter[tuple[str, str]]
# what a mutant may cost at most: a raw group or section of the allowed 64 MiB, its decoded form, and the heap's slack
MEMORY_BYTES = 1 << 30


class Fuzzer:
    """Reads mutants one by one from a file that is overwritten in place."""

    def __init__(self, parts: Parts, seed: int, folder: Path) -> None:
        self.outcomes: Outcomes = collections.Counter()
        self.slowest = 0.0
        self._mutator = Mutator(parts, seed)
        self._path = folder / "mutant.nojit"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def run(self, count: int) -> Mutant | None:
        """Read `count` mutants; return the first that was not handled right, if any."""
        for _ in range(count):
            mutant = self._mutator.mutant()
            os.ftruncate(self._file, len(mutant.data))
            os.pwrite(self._file, mutant.data, 0)
            start = time.perf_counter()
            outcome = self._read()
            if outcome == "accepted" and not mutant.sealed and mutant.data != self._mutator.golden:
                outcome = "FAULT: accepted, though its bytes are not those that were sealed"
            self.slowest = max(self.slowest, time.perf_counter() - start)
            self.outcomes[mutant.how, outcome] += 1
            if outcome.startswith("FAULT"):
                return mutant
        return None

    def _read(self) -> str:
        used = self._outcome(use_everything)
        read = self._outcome(read_everything)
        return used if used.startswith("FAULT") else read

    def _outcome(self, read: Callable[[Path], int]) -> str:
        try:
            read(self._path)
        except BundleFormatError as error:
            return f"format: {error.rule}"
        except BundleError as error:
            return f"integrity: {_words(error.what)}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            return f"FAULT: {type(error).__name__}: {error}"
        return "accepted"


def _words(what: str) -> str:
    """Leave out of a message what differs from mutant to mutant."""
    return " ".join(word for word in what.split() if word.isalpha() and len(word) < 16)[:40]


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzer; return 0 if every mutant was handled right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path(), help="folder for a mutant that is a finding")
    options = parser.parse_args(arguments)
    _bound_memory()
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        fuzzer = Fuzzer(small_parts(), options.seed, Path(folder))
        before, start = _peak_bytes(), time.perf_counter()
        fault = fuzzer.run(options.count)
        seconds = time.perf_counter() - start
        fuzzer.close()
    _print(fuzzer, seconds, _peak_bytes() - before)
    if fault is None:
        return 0
    kept = options.keep / f"fault-{options.seed}-{sum(fuzzer.outcomes.values())}.nojit"
    kept.write_bytes(fault.data)
    print(f"kept as {kept}", file=sys.stderr)
    return 1


def _bound_memory() -> None:
    """Make an allocation past the bound fail, which is a fault like any other."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES,) * 2)


def _memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _print(fuzzer: Fuzzer, seconds: float, grown_bytes: int) -> None:
    total = sum(fuzzer.outcomes.values())
    for (how, outcome), count in sorted(fuzzer.outcomes.items()):
        print(f"{count:9,}  {how:28} {outcome}")
    print(
        f"{total:,} mutants in {seconds:.1f} s: {total / seconds:,.0f} a second; slowest {1e3 * fuzzer.slowest:.1f} ms; "
        f"peak memory grew by {grown_bytes / (1 << 20):.0f} MiB"
    )


if __name__ == "__main__":
    sys.exit(main())
