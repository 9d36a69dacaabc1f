"""`benchmarks/races.py` leaves out what Triton's hand-over makes racecheck report, and nothing else."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.aot.bench.conftest import load_script

WRITE, READ = 0x100, 0x200
HANDED_OVER = {
    WRITE: "STS.64 [UR4+0x9178], R2",
    WRITE + 0x10: "STS [UR4+0x9180], R2",
    WRITE + 0x20: "BAR.SYNC.DEFER_BLOCKING 0x1",
    READ - 0x30: "BAR.SYNC.DEFER_BLOCKING 0x1",
    READ - 0x20: "ULEA UR14, UR4, UR14, 0x18",
    READ: "LDS.U8 R4, [R4+UR15+0x9174]",
}
LOG = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at scale_kernel+0x100
=========     and Read access at scale_kernel+0x200 [28 hazards]
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
