"""`benchmarks/races.py` leaves out what Triton's hand-over makes racecheck report, and nothing else."""

from __future__ import annotations

import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from nojit import runtime
from nojit.runtime.bundle.file import BundleFile

from tests.aot.bench.conftest import load_script
from tests.support.bundles import SyntheticKernel, kernel, make_bundle
from tests.support.cubins import CubinSpec, build_cubin

WRITE, READ = 0x100, 0x1000
HANDED_OVER = {
    WRITE: "STS.64 [UR4+0x9178], R2",
    WRITE + 0x10: "STS [UR4+0x9180], R2",
    WRITE + 0x20: "BAR.SYNC.DEFER_BLOCKING 0x1",
    READ - 0x30: "BAR.SYNC.DEFER_BLOCKING 0x1",
    READ - 0x20: "ULEA UR14, UR4, UR14, 0x18",
    READ: "LDS.U8 R4, [R4+UR15+0x9174]",
}
ARGUMENT, TAKEN = 0x400, 0x2000
TAKEN_OVER = {
    ARGUMENT: "STS.128 [UR4+0x9100], R4",
    ARGUMENT + 0x10: "STL [R1+0x20], R9",
    ARGUMENT + 0x200: "BAR.SYNC.DEFER_BLOCKING 0x1",
    ARGUMENT + 0x210: "USETMAXREG.DEALLOC.CTAPOOL 0xf0",
    ARGUMENT + 0x220: "BAR.SYNC.DEFER_BLOCKING 0x1",
    TAKEN: "LDS.64 R2, [R0+0x9100]",
    TAKEN + 0x1D0: "BAR.SYNC.DEFER_BLOCKING 0x1",
}
LOG = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at scale_kernel+0x100
=========     and Read access at scale_kernel+0x200 [28 hazards]
=========     and Read access at scale_kernel+0x600 [4 hazards]
=========
========= Error: Race reported between Read access at scale_kernel+0x300
=========     and Write access at other_kernel+0x40 [1 hazards]
"""


@pytest.fixture(scope="module")
def races() -> ModuleType:
    return load_script("races")


def test_a_log_is_read(races: ModuleType) -> None:
    assert list(races.reports(LOG)) == [
        ("scale_kernel", 0x100, 0x200),
        ("scale_kernel", 0x100, 0x600),
        ("scale_kernel and other_kernel", 0x300, 0x40),
    ]


def test_a_byte_behind_a_barrier_of_all_is_handed_over(races: ModuleType) -> None:
    assert races.is_handed_over(HANDED_OVER, WRITE, READ)
    assert not races.is_handed_over(HANDED_OVER, READ, WRITE)


@pytest.mark.parametrize(
    "change",
    [
        {WRITE + 0x20: "NOP"},
        {READ - 0x30: "NOP"},
        {WRITE + 0x20: "BAR.SYNC.DEFER_BLOCKING 0x2, 0x80"},
        {READ: "LDS R4, [R4+UR15+0x9174]"},
        {READ: "LDSM.16.M88.4 R4, [R4]"},
        {WRITE: "STSM.16.M88.4 [R4], R8"},
        {WRITE: "UTMASTG.4D [UR4], [UR6]"},
    ],
)
def test_anything_else_is_not(races: ModuleType, change: dict[int, str]) -> None:
    assert not races.is_handed_over(HANDED_OVER | change, WRITE, READ)


def test_an_argument_between_two_barriers_of_all_is_handed_over(races: ModuleType) -> None:
    assert races.is_handed_over(TAKEN_OVER, ARGUMENT, TAKEN)
    assert not races.is_handed_over(TAKEN_OVER, TAKEN, ARGUMENT)


@pytest.mark.parametrize(
    "change",
    [
        {ARGUMENT + 0x200: "NOP"},
        {ARGUMENT + 0x210: "@!P0 BRA 0x250"},
        {TAKEN + 0x1D0: "NOP"},
        {TAKEN + 0x1D0: "BAR.SYNC.DEFER_BLOCKING 0x0, 0x80"},
        {TAKEN + 0x10: "EXIT"},
        {TAKEN: "LDSM.16.M88.4 R4, [R4]"},
        {TAKEN: "LDS.U8 R2, [R0+0x9100]"},
        {ARGUMENT: "STSM.16.M88.4 [R4], R8"},
    ],
)
def test_an_access_that_no_barrier_separates_is_not(races: ModuleType, change: dict[int, str]) -> None:
    assert not races.is_handed_over(TAKEN_OVER | change, ARGUMENT, TAKEN)


# one barrier stands between the two
HAND_OVER = ("STS [UR4], R2", "BAR.SYNC.DEFER_BLOCKING 0x1", "LDS.U8 R4, [UR4]")
NO_BARRIER = ("STS [UR4], R2", "NOP", "LDS.U8 R4, [UR4]")
REPORTED = ("scale", 0x0, 0x20)


def words_of(code: Sequence[str]) -> bytes:
    """Stand for machine code: the first letters of each instruction."""
    return b"".join([instruction.encode().ljust(16)[:16] for instruction in code])


def synthetic(symbol: str, *codes: Sequence[str]) -> SyntheticKernel:
    """A kernel with an image of each code."""
    one = kernel(symbol, {"x_ptr": "*fp32"}, configs=[{"num_warps": 4, "num_stages": n} for n in range(len(codes))])
    images = [build_cubin(CubinSpec(symbol, (8, 8, 8), code=words_of(code))) for code in codes]
    return replace(one, images=tuple(images))


@pytest.fixture
def bundle(tmp_path: Path) -> Iterator[runtime.Bundle]:
    scale = synthetic("scale", NO_BARRIER, HAND_OVER)
    copy = synthetic("copy", (*HAND_OVER, "EXIT"), (*NO_BARRIER, "RET"))
    with runtime.load(make_bundle(tmp_path / "test.nojit", scale, copy)) as opened:
        yield opened


@pytest.fixture
def spelled(races: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Have instructions be words of themselves; return those that are disassembled, as they come."""
    seen: list[bytes] = []

    def disassemble(words: Collection[bytes], arch: str, nvdisasm: str) -> Mapping[bytes, str]:
        assert (arch, nvdisasm) == ("sm_90a", "nvdisasm")
        seen.extend(words)
        known = {words_of([one]): one for one in (*HAND_OVER, *NO_BARRIER)}
        return {word: known.get(word, "") for word in words}

    monkeypatch.setattr(races, "disassemble", disassemble)
    return seen


def test_a_hand_over_of_one_image_explains_a_report(
    races: ModuleType, bundle: runtime.Bundle, spelled: list[bytes]
) -> None:
    other, unknown = ("scale", 0x10, 0x20), ("gone", 0x0, 0x20)
    assert races.unexplained([REPORTED, other, unknown], bundle, "nvdisasm") == [other, unknown]
    assert races.unexplained([("scale", 0x20, 0x0)], bundle, "nvdisasm") == []
    assert races.unexplained([("scale", 0x0, 0x2000)], bundle, "nvdisasm") == [("scale", 0x0, 0x2000)]


def test_images_that_no_report_names_are_neither_read_nor_disassembled(
    races: ModuleType, bundle: runtime.Bundle, spelled: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, int]] = []
    image = BundleFile.image

    def noted(file: BundleFile, name: str, number: int) -> bytes:
        read.append((name, number))
        return image(file, name, number)

    monkeypatch.setattr(BundleFile, "image", noted)
    races.unexplained([REPORTED], bundle, "nvdisasm")
    assert read == [("scale", 0), ("scale", 1)]
    assert sorted(spelled) == sorted({words_of([one]) for one in (*HAND_OVER, *NO_BARRIER)})


def test_each_instruction_is_disassembled_once(races: ModuleType, bundle: runtime.Bundle, spelled: list[bytes]) -> None:
    races.unexplained([REPORTED, ("scale", 0x10, 0x20), ("copy", 0x0, 0x30)], bundle, "nvdisasm")
    assert len(spelled) == len(set(spelled)) == 6


def test_nothing_is_disassembled_where_nothing_is_reported(
    races: ModuleType, bundle: runtime.Bundle, spelled: list[bytes]
) -> None:
    assert races.unexplained([], bundle, "nvdisasm") == []
    assert races.unexplained([("gone", 0x0, 0x20)], bundle, "nvdisasm") == [("gone", 0x0, 0x20)]
    assert spelled == []


def test_accesses_behind_the_code_of_all_images_are_unexplained(races: ModuleType, bundle: runtime.Bundle) -> None:
    behind = ("scale", 0x2000, 0x2010)
    assert races.unexplained([behind], bundle, "no such program") == [behind]


def test_instructions_are_spelled_by_nvdisasm(races: ModuleType, tmp_path: Path) -> None:
    tool = tmp_path / "nvdisasm"
    tool.write_text(
        '#!/bin/sh\nif [ "$1 $2 $3" != "-c -b SM90a" ]; then exit 2; fi\n'
        'echo "        /*0000*/                   STS [UR4], R2 ;  /* 0x0 */"\n'
        'echo ".L_x_0:"\n'
        'echo "        /*0010*/              @!P0 BRA 0x5b0 ;"\n'
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    known = races.disassemble([b"a" * 16, b"b" * 16], "sm_90a", str(tool))
    assert {word: text.strip() for word, text in known.items()} == {
        b"a" * 16: "STS [UR4], R2",
        b"b" * 16: "@!P0 BRA 0x5b0",
    }
