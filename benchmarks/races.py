"""Read racecheck's reports, and drop those caused by Triton's own hand-over between warps.

    python benchmarks/races.py BUNDLE LOG... [--nvdisasm PATH]
    python benchmarks/races.py BUNDLE --run compute-sanitizer --tool racecheck ...

The second form runs the command, shows its output, and reads that; it fails if the command does.

A warp-specialized kernel passes commands and arguments to its workers through shared memory. All warps meet at barrier 1
after the write. A worker then reads its command, one byte, and its arguments, and all warps meet a second time. racecheck
reports these as hazards, because the two sides wait at different instructions. A hazard is dropped in two cases, if some
variant of the kernel in BUNDLE has such code:

- a command: the write leads to a meeting, and the read, of one byte, is right after one;
- an argument: the write leads to two meetings, and the read to one.

All others are printed. Exits 1 if there are any, or a log is incomplete.
"""

from __future__ import annotations

import argparse
import collections
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from nojit import runtime
from nojit.runtime.bundle.cubin import read_sections

REPORT = re.compile(
    r"Race reported between (?:Write|Read) access at (\w+)\+0x([0-9a-f]+)[^\n]*\n((?:=========\s+and [^\n]*\n?)+)"
)
OTHER = re.compile(r"and (?:Write|Read) access at (\w+)\+0x([0-9a-f]+)")
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?);")
MEETING = re.compile(r"BAR\.SYNC\S* 0x1\b")
JUMP = re.compile(r"\b(?:BRA|BRX|CALL|EXIT|JMP|JMX|RET)\b")
# the most instructions from a meeting to the read of a command
NEAR = 6
# the most instructions from an access to the meetings it leads to
FAR = 128
BYTES = 16

Code = Mapping[int, str]
"""Instructions by address."""
Report = tuple[str, int, int]
"""A kernel's symbol, and the addresses of two accesses."""


def reports(text: str) -> Iterator[Report]:
    """Yield the hazards in a log: an access with each of those that its report names."""
    for one, first, others in REPORT.findall(text):
        for other, second in OTHER.findall(others):
            yield (one if one == other else f"{one} and {other}"), int(first, 16), int(second, 16)


def disassemble(words: Collection[bytes], arch: str, nvdisasm: str) -> Mapping[bytes, str]:
    """Disassemble instructions for an arch such as ``sm_90a``, each on its own."""
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(b"".join(words))
        file.flush()
        command = [nvdisasm, "-c", "-b", arch.replace("sm_", "SM"), file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    spelled = {int(place, 16): instruction for place, instruction in INSTRUCTION.findall(done.stdout)}
    return {word: spelled[BYTES * number] for number, word in enumerate(words)}


def is_handed_over(code: Code, write: int, read: int) -> bool:
    """Return whether an access writes a command or an argument, and the other reads it."""
    if not re.match(r"STS\b", code.get(write, "")) or not re.match(r"LDS\b", code.get(read, "")):
        return False
    if code[read].startswith("LDS.U8 "):
        before = [code.get(read - BYTES * step, "") for step in range(1, NEAR)]
        return meetings_after(code, write) > 0 and any(map(MEETING.search, before))
    # a write between the two meetings leads to one only: it could race
    return meetings_after(code, write) > 1 and meetings_after(code, read) > 0


def meetings_after(code: Code, place: int) -> int:
    """Count the meetings of all warps after an instruction, up to the first jump."""
    count = 0
    for step in range(1, FAR):
        instruction = code.get(place + BYTES * step, "")
        if JUMP.search(instruction):
            break
        count += MEETING.search(instruction) is not None
    return count


def codes_of(bundle: runtime.Bundle, symbols: Collection[str]) -> Mapping[str, list[tuple[str, bytes]]]:
    """Return the machine code of some symbols in each image of the kernels that launch them, with its arch; read no other image."""
    found: dict[str, list[tuple[str, bytes]]] = collections.defaultdict(list)
    for file in bundle.files:
        for kernel in file.kernels:
            table = file.table(kernel)
            launched = {
                table.columns["image"][row]: table.launches[table.columns["launch"][row]].symbol
                for row in range(len(table))
            }
            for image, symbol in launched.items():
                if symbol in symbols:
                    code = code_of(file.image(kernel, image), symbol)
                    found[symbol].append((file.index.target.image_arch, code))
    return found


def code_of(image: bytes, symbol: str) -> bytes:
    """Return the machine code of a symbol in an image."""
    return read_sections(image).get(f".text.{symbol}".encode(), b"")


def words_near(code: bytes, *places: int) -> Mapping[int, bytes]:
    """Return the instructions at and around some addresses, by address, within the code."""
    near = {place + BYTES * step for place in places for step in range(1 - NEAR, FAR)}
    return {place: code[place : place + BYTES] for place in near if 0 <= place <= len(code) - BYTES}


def is_explained(
    report: Report, codes: Mapping[str, list[tuple[str, bytes]]], spelled: Mapping[str, Mapping[bytes, str]]
) -> bool:
    """Return whether a report is a hand-over in some image.

    Args:
        report: a hazard.
        codes: the result of `codes_of`.
        spelled: the instructions near both accesses, by arch.
    """
    symbol, one, other = report
    for arch, code in codes.get(symbol, ()):
        near = {place: spelled[arch][word] for place, word in words_near(code, one, other).items()}
        if is_handed_over(near, one, other) or is_handed_over(near, other, one):
            return True
    return False


def unexplained(found: Sequence[Report], bundle: runtime.Bundle, nvdisasm: str) -> list[Report]:
    """Return the reports that are not hand-overs.

    Only instructions near the accesses are disassembled, in one batch: some kernels have hundreds of images, and whole
    disassemblies would take minutes.
    """
    codes = codes_of(bundle, {symbol for symbol, _, _ in found})
    words: dict[str, set[bytes]] = collections.defaultdict(set)
    for symbol, one, other in found:
        for arch, code in codes.get(symbol, ()):
            words[arch].update(words_near(code, one, other).values())
    spelled = {arch: disassemble(sorted(some), arch, nvdisasm) for arch, some in words.items() if some}
    return [report for report in found if not is_explained(report, codes, spelled)]


def main() -> int:
    """Read the logs and print the remaining hazards; return the exit code."""
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
    print(f"{known} hand-overs between warps, {len(left)} places of other hazards")
    return 1 if left or cut or status else 0


if __name__ == "__main__":
    sys.exit(main())
