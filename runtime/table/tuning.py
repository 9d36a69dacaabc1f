"""Tuning tables as a bundle holds them: which config to try first, for which device, case and problem."""

from __future__ import annotations

from nojit.runtime.base.frozen_record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TypeAlias

    from nojit.runtime.base.strict_json import Json

__all__ = [
    "TunedDevice",
    "Tuning",
    "TuningBlock",
    "TuningColumns",
    "TuningRow",
    "TuningTable",
]

TuningColumns: TypeAlias = tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]
"""Of problems, their key values, rounded to their buckets; configs of the kernel's table by number, the best first; how
far each of these is behind the fastest, in thousandths of an octave."""


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
    """The problems of cases that are tuned alike."""

    cases: tuple[int, ...]
    """Of the kernel's table, ascending; each in one block of a table at most."""
    text: bytes
    """The problems as a table spells them, ascending, at least one. There can be hundreds, and few calls ask for them."""
    costs: bytes = b""
    """The estimated times of configs, as a table spells them: pairs of a config and an expression in postfix over
    ``key0`` to ``key7`` and ``multiprocessors``, in picoseconds. Empty if problems alone decide."""

    def columns(self) -> TuningColumns:
        """Return the key values, the configs and how far each is behind, of all problems."""
        from nojit.runtime.base.strict_json import parse_json

        rows: Any = parse_json(self.text, "")
        at, use, behind = (tuple([tuple(row[place]) for row in rows]) for place in range(3))
        return at, use, behind

    def estimates(self) -> list[tuple[int, str]]:
        """Return the pairs in `costs`."""
        from nojit.runtime.base.strict_json import parse_json

        pairs: Any = parse_json(self.costs, "") if self.costs else []
        return [(config, words) for config, words in pairs]

    @property
    def rows(self) -> tuple[TuningRow, ...]:
        """The problems one by one."""
        return tuple(map(TuningRow, *self.columns()))

    @staticmethod
    def of(cases: Iterable[int], rows: Iterable[TuningRow], costs: Iterable[tuple[int, str]] = ()) -> TuningBlock:
        """Make a block of its problems and the estimated times of configs."""
        from nojit.runtime.base.strict_json import canonical_json

        spelled: list[Json] = [[[*row.at], [*row.use], [*row.behind]] for row in rows]
        estimates: list[Json] = [[*pair] for pair in costs]
        return TuningBlock(tuple(cases), canonical_json(spelled), canonical_json(estimates) if estimates else b"")


class TuningTable(Record):
    """The measurements of one kernel on one device."""

    device: TunedDevice
    blocks: tuple[TuningBlock, ...]

    def block_of(self, case: int) -> TuningBlock | None:
        """Return the block that a case is in; None if it is not tuned."""
        for block in self.blocks:
            if case in block.cases:
                return block
        return None


class Tuning(Record):
    """The numbers that the best config depends on, and the measurements."""

    key: tuple[str, ...]
    """Expressions over integer runtime params."""
    bucket: str
    """How key values are rounded (`nojit.runtime.tuning.lookup.bucket_of`)."""
    tables: tuple[TuningTable, ...] = ()
    """One for each device of the bundle's arch."""
