"""Tuning tables as a bundle holds them: which config to try first, for which device, meaning and problem."""

from __future__ import annotations

from collections.abc import Iterable

from nojit.runtime.record import Record

__all__ = ["BEHIND_MAX", "BUCKETS", "TunedDevice", "Tuning", "TuningBlock", "TuningRow", "TuningTable"]

BUCKETS = ("pow2", "quarter_pow2", "exact")
"""How key values are rounded (`nojit.runtime.tuning.bucket_of`); a program names a kind by its place here."""

BEHIND_MAX = 100_000
"""The farthest behind that a config can be: a hundred octaves."""


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
    """Its key values."""
    use: tuple[int, ...]
    """Its configs."""
    behind: tuple[int, ...]
    """How far each is behind the fastest of them, in thousandths of an octave: 1000 is twice the time."""


class TuningBlock(Record):
    """The problems of meanings that are tuned alike."""

    meanings: tuple[int, ...]
    """Of the kernel's table, ascending; each in one block of a table at most."""
    at: tuple[tuple[int, ...], ...]
    """Of each problem, its key values, rounded to their buckets; ascending, at least one."""
    use: tuple[tuple[int, ...], ...]
    """Of each problem, configs of the kernel's table by number, the best first."""
    behind: tuple[tuple[int, ...], ...]
    """Of each problem, how far each of these is behind the fastest, in thousandths of an octave."""

    @property
    def rows(self) -> tuple[TuningRow, ...]:
        """The problems one by one."""
        # not kept so: there can be hundreds, and a first launch reads them all
        return tuple(map(TuningRow, self.at, self.use, self.behind))

    @staticmethod
    def of(meanings: Iterable[int], rows: Iterable[TuningRow]) -> TuningBlock:
        """Make a block of its problems."""
        listed = tuple(rows)
        columns = [tuple([getattr(row, name) for row in listed]) for name in ("at", "use", "behind")]
        return TuningBlock(tuple(meanings), *columns)


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
