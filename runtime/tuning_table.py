"""Tuning tables as a bundle holds them: which config to try first, for which device, meaning and problem."""

from __future__ import annotations

from nojit.runtime.record import Record

__all__ = ["BUCKETS", "TunedDevice", "Tuning", "TuningBlock", "TuningRow", "TuningTable"]

BUCKETS = ("pow2", "quarter_pow2", "exact")
"""How key values are rounded (`nojit.runtime.tuning.bucket_of`); a program names a kind by its place here."""


class TunedDevice(Record):
    """A device that was measured, or that a call is for."""

    name: str
    """The driver's: ``NVIDIA H200``."""
    arch: str
    """``sm_90``."""
    multiprocessors: int
    memory_bytes: int


class TuningRow(Record):
    """One measured problem."""

    at: tuple[int, ...]
    """Its key values, rounded to their buckets."""
    use: tuple[int, ...]
    """Configs of the kernel's table by number, the best first."""


class TuningBlock(Record):
    """The problems of meanings that are tuned alike."""

    meanings: tuple[int, ...]
    """Of the kernel's table, ascending; each in one block of a table at most."""
    rows: tuple[TuningRow, ...]
    """Ascending by ``at``; at least one."""


class TuningTable(Record):
    """What was measured of one kernel on one device."""

    device: TunedDevice
    blocks: tuple[TuningBlock, ...]

    def block_of(self, meaning: int) -> TuningBlock | None:
        """Return the block that a meaning is in; None if it is not tuned."""
        return next((block for block in self.blocks if meaning in block.meanings), None)


class Tuning(Record):
    """What the best config depends on, and what was measured."""

    key: tuple[str, ...]
    """Expressions over integer runtime params."""
    bucket: str
    """One of `BUCKETS`."""
    tables: tuple[TuningTable, ...] = ()
    """One for each device of the bundle's arch."""
