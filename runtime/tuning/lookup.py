"""Look configs up in tuning tables: buckets, the problems that are near, the nearest device.

The engine computes all of these (``engine/select/config_order.h``), and its driver describes a device if a table must be
chosen for it. This module gives it the tables, and puts its decisions into words.

A decision depends on the device's table, the case and the key's buckets alone, never on the first value of a bucket
that a process happens to see: two processes decide alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TypeAlias

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.table.parts import Config
from nojit.runtime.table.table import KernelTable
from nojit.runtime.table.tuning import TunedDevice, Tuning, TuningBlock, TuningTable
from nojit.runtime.values import spell

__all__ = [
    "Lookup",
    "Ordering",
    "TuningDecision",
    "bucket_of",
    "closest_device",
    "config_words",
    "estimates",
    "lookup_of",
    "nearest",
    "ranked",
]

Ordering: TypeAlias = tuple[_core.Tuning, int, int]
"""A tuning of the engine's, the place of the device's table in it, -1 if there is none, and the device's multiprocessors."""


class TuningDecision(Record):
    """A tuning table's decision for one call."""

    device: str
    """The device that was measured; empty if none was."""
    source: str
    """Where the table came from: the bundle, or a file."""
    at: tuple[int, ...]
    """The key values of the row that decides; none with ``NOJIT_BATCH_INVARIANT``, where one order serves all sizes."""
    exact: bool
    """Whether the call lies in that row's buckets; else the row is the nearest, and estimates decide, or others that are
    near have a say."""
    order: tuple[str, ...]
    """The configs in words, the best first."""
    estimated_us: tuple[float, ...] = ()
    """The estimated time of each of them, where that decides."""


def bucket_of(kind: str, value: int) -> int:
    """Round a key value to its bucket.

    Args:
        kind: ``pow2`` rounds up to a power of two; ``quarter_pow2`` to the nearest of 4, 5, 6 and 7 times a power of
            two, halfway up, and leaves values below 8 alone; ``sixteenth_pow2`` rounds up to one of 16 steps from each power
            of two to the next, and leaves values below 32 alone; ``exact`` rounds nothing.
        value: what is not positive counts as 0; with a rounding kind, what is above 2^62 as 2^62.
    """
    return _core.bucket_of(kind, value)


def nearest(points: Sequence[tuple[int, ...]], key: tuple[int, ...]) -> int:
    """Return the place of the point nearest to a key: an equal one, else the least sum of `|log2(a / b)|`.

    0 counts as a half. Of equally near points the first is taken.

    Args:
        points: at least one, each of as many numbers from 0 as the key, which has one or more.
        key: as many numbers from 0 as each point.
    """
    return _core.nearest(points, key)


def ranked(block: TuningBlock, key: tuple[int, ...], multiprocessors: int) -> tuple[int, ...]:
    """Order the configs of a block for a key, the best first.

    Args:
        block: the measured problems.
        key: as rounded as theirs.
        multiprocessors: of the device.
    """
    return _core.rank_configs((*block.columns(), tuple(block.estimates())), key, multiprocessors)


def estimates(block: TuningBlock, key: tuple[int, ...], multiprocessors: int) -> dict[int, int | None]:
    """Compute what each config of a block is estimated to take, in picoseconds; None where that cannot be computed."""
    return _core.estimate(tuple(block.estimates()), key, multiprocessors)


def closest_device(devices: Sequence[TunedDevice], device: TunedDevice) -> int:
    """Return the place of the device most like another: by multiprocessors and memory in log space, then by name.

    Args:
        devices: at least one.
        device: the one that the call is for.
    """
    tables = tuple([(known.name, known.multiprocessors, known.memory_bytes, ()) for known in devices])
    return _core.Tuning((), "exact", tables).closest(device.name, device.multiprocessors, device.memory_bytes)


class Lookup(Record):
    """A kernel's tuning on one device."""

    tuning: Tuning
    table: TuningTable | None
    """None if nothing was measured for the device's arch."""
    source: str
    """Where the table came from."""
    multiprocessors: int = 0
    """Of the device."""

    __slots__ = ("_engine",)

    def ordering(self, kernel: KernelTable) -> Ordering:
        """Return what the engine orders the configs of a kernel by."""
        known: Ordering | None = getattr(self, "_engine", None)
        if known is None:
            place = next((place for place, table in enumerate(self.tuning.tables) if table is self.table), -1)
            known = (_engine_tuning(self.tuning, kernel), place, self.multiprocessors)
            object.__setattr__(self, "_engine", known)
        return known

    def decision(self, key: Sequence[int], kernel: KernelTable, case: int) -> TuningDecision | None:
        """Say what decides for a call of a case, for people; None if nothing was measured for it."""
        block = None if self.table is None else self.table.block_of(case)
        if block is None or self.table is None:
            return None
        rounded = tuple([bucket_of(self.tuning.bucket, value) for value in key])
        problems, _, _ = block.columns()
        at = problems[nearest(problems, rounded)]
        order = ranked(block, rounded, self.multiprocessors)
        costs = {} if at == rounded else estimates(block, rounded, self.multiprocessors)
        words = tuple([config_words(kernel.configs[number]) for number in order])
        us = tuple([inf if (cost := costs[number]) is None else cost / 1e6 for number in order] if costs else ())
        return TuningDecision(self.table.device.name, self.source, at, at == rounded, words, us)


def lookup_of(tuning: Tuning, kernel: KernelTable, origins: Sequence[str], device: int | None = None) -> Lookup:
    """Choose the table of the device that is most like the one at hand.

    Args:
        tuning: the tables to choose from.
        kernel: the kernel's variants.
        origins: where each table came from.
        device: the ordinal of the device at hand. The driver describes it, but only if there is a choice, or an estimate.
            None takes the first table, and its device stands for the one at hand.
    """
    known = _engine_tuning(tuning, kernel)
    place, multiprocessors = known.on(device)
    measured = place >= 0
    lookup = Lookup(
        tuning, tuning.tables[place] if measured else None, origins[place] if measured else "", multiprocessors
    )
    object.__setattr__(lookup, "_engine", (known, place, multiprocessors))
    return lookup


def _engine_tuning(tuning: Tuning, kernel: KernelTable) -> _core.Tuning:
    """Return the engine's tuning: the kernel's own, or one made of a tuning that no bundle has."""
    if tuning is kernel.tuning:
        return _core.Tuning(kernel.handle())
    tables = [
        (
            table.device.name,
            table.device.multiprocessors,
            table.device.memory_bytes,
            tuple([(block.cases, (*block.columns(), tuple(block.estimates()))) for block in table.blocks]),
        )
        for table in tuning.tables
    ]
    return _core.Tuning(tuning.key, tuning.bucket, tuple(tables))


def config_words(config: Config) -> str:
    """Return the settings of a config as text."""
    pairs = config.constexprs + config.options
    return " ".join([f"{name}={spell(value)}" for name, value in pairs if value is not None])
