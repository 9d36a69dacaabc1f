"""Read what racecheck reported, and leave out what Triton's own hand-over between warps makes it report.

    python benchmarks/races.py BUNDLE LOG... [--nvdisasm PATH]
    python benchmarks/races.py BUNDLE --run compute-sanitizer --tool racecheck ...

The second runs the command, shows what it prints, and reads that; it fails where the command does.

A kernel that is specialized by warps tells its workers what to do through bytes in shared memory: all warps meet at barrier 1
between the write and the read. racecheck reports these as hazards, for the two sides wait at other instructions. A report is
left out if the write stands right before such a barrier and the read, of one byte, right behind one, in some variant of the
kernel in BUNDLE; all others are printed. Exits 1 if there are any, or a log says that it did not end.
"""

from __future__ import annotations

import argparse
import collections
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nojit import runtime

REPORT = re.compile(
    r"Race reported between (?:Write|Read) access at (\w+)\+0x([0-9a-f]+)[^\n]*\n"
    r"=========\s+and (?:Write|Read) access at (\w+)\+0x([0-9a-f]+)"
)
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);")
MEETING = re.compile(r"BAR\.SYNC\S* 0x1\b")
# instructions between the access and the barrier
NEAR = 6
BYTES = 16

Code = Mapping[int, str]
"""Instructions by address."""
Report = tuple[str, int, int]
"""A kernel's symbol, and the addresses of two accesses."""


def reports(text: str) -> Iterator[Report]:
    """List the hazards of a log."""
    for one, first, other, second in REPORT.findall(text):
        yield (one if one == other else f"{one} and {other}"), int(first, 16), int(second, 16)


def disassemble(image: bytes, nvdisasm: str) -> Code:
    """Return the instructions of an image."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        done = subprocess.run([nvdisasm, "-c", file.name], capture_output=True, text=True, check=True)
    return {int(place, 16): words for place, words in INSTRUCTION.findall(done.stdout)}


def is_handed_over(code: Code, write: int, read: int) -> bool:
    """Say whether all warps meet behind a write and before the read of a byte, with no other access in between."""
    if not re.match(r"STS\b", code.get(write, "")) or not re.match(r"LDS\.U8\b", code.get(read, "")):
        return False
    behind = [code.get(write + BYTES * step, "") for step in range(1, NEAR)]
    before = [code.get(read - BYTES * step, "") for step in range(1, NEAR)]
    return any(map(MEETING.search, behind)) and any(map(MEETING.search, before))


def images_of(bundle: runtime.Bundle) -> Mapping[str, list[bytes]]:
    """Return the images of each symbol that kernels of a bundle launch."""
    found: dict[str, list[bytes]] = collections.defaultdict(list)
    for file in bundle.files:
        for kernel in file.kernels:
            table = file.table(kernel)
            symbols = {
                table.columns["image"][row]: table.launches[table.columns["launch"][row]].symbol
                for row in range(len(table))
            }
            for image, symbol in symbols.items():
                found[symbol].append(bytes(file.image(kernel, image)))
    return found


def unexplained(found: Sequence[Report], bundle: runtime.Bundle, nvdisasm: str) -> list[Report]:
    """Return the reports that are of no hand-over."""
    left = []
    images, codes = images_of(bundle), {}
    for symbol, one, other in found:
        if symbol not in codes:
            codes[symbol] = [disassemble(image, nvdisasm) for image in images.get(symbol, ())]
        pairs = ((one, other), (other, one))
        if not any(is_handed_over(code, *pair) for code in codes[symbol] for pair in pairs):
            left.append((symbol, one, other))
    return left


def main() -> int:
    """Read, sort, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("logs", type=Path, nargs="*")
    parser.add_argument("--nvdisasm", default=shutil.which("nvdisasm") or "nvdisasm")
    parser.add_argument("--run", nargs=argparse.REMAINDER, default=[])
    given = parser.parse_args()
    if bool(given.logs) == bool(given.run):
        parser.error("expected logs, or --run and a command")
    texts = {str(path): path.read_text(errors="replace") for path in given.logs}
    status = 0
    if given.run:
        done = subprocess.run(given.run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        status, texts["the command"] = done.returncode, done.stdout.decode(errors="replace")
        print(texts["the command"])
    cut = [path for path, text in texts.items() if "RACECHECK SUMMARY" not in text]
    counted = collections.Counter(report for text in texts.values() for report in reports(text))
    with runtime.load(given.bundle) as bundle:
        left = unexplained(sorted(counted), bundle, given.nvdisasm)
    for symbol, one, other in left:
        print(f"{symbol}: {one:#x} and {other:#x}, {counted[symbol, one, other]} times")
    for path in cut:
        print(f"{path} did not end")
    known = sum(counted.values()) - sum(counted[report] for report in left)
    print(f"{known} reports of hand-overs between warps, {len(left)} places of other hazards")
    return 1 if left or cut or status else 0


if __name__ == "__main__":
    sys.exit(main())
