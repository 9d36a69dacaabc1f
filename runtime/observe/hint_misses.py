"""Which set of hints a kind of call just misses, so that a variant with fewer serves it. Decided once for each kind of call."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from time import perf_counter_ns
from typing import TypeAlias

from nojit.runtime.call import Argument, CallFacts, hint_holds, leaf_of
from nojit.runtime.observe.events import HintMiss, note_hint_miss
from nojit.runtime.table import KernelTable

__all__ = ["failing", "is_outhinted", "nearest", "note"]

Hints: TypeAlias = tuple[tuple[str, int], ...]


def is_outhinted(table: KernelTable, row: int) -> bool:
    """Say whether a variant with the same meaning, config and derived constexprs as a row has more hints."""
    return next(_richer(table, row), None) is not None


def nearest(table: KernelTable, row: int, call: CallFacts) -> tuple[Hints, tuple[tuple[str, int, str], ...]] | None:
    """Find the set of hints that a call which a row serves just misses: as many of them hold as fail at least, and the fewest fail.

    Returns:
        The set, and those of it that do not hold with their values in words; None if no set is near.
    """
    missed = [(hints, failing(hints, call.arguments)) for hints in _richer(table, row)]
    near = [(len(failed), -len(hints), hints, failed) for hints, failed in missed if 0 < 2 * len(failed) <= len(hints)]
    if not near:
        return None
    _, _, hints, failed = min(near)
    return hints, failed


def failing(hints: Hints, arguments: Mapping[str, Argument]) -> tuple[tuple[str, int, str], ...]:
    """List the hints of a set that do not hold, each with the value in words."""
    found = []
    for path, hint in hints:
        argument = leaf_of(arguments, path)
        if argument is None or not hint_holds(argument, hint):
            found.append((path, hint, "none there" if argument is None else _number(argument)))
    return tuple(found)


def note(table: KernelTable, row: int, call: CallFacts, *, bundle: str, device: int) -> None:
    """Count and tell of it if a kind of call that a row serves just misses a set of hints.

    Args:
        table: the kernel's variants.
        row: what serves the call.
        call: the call.
        bundle: the id of the bundle that the table is of.
        device: the ordinal.
    """
    began_ns = perf_counter_ns()
    found = nearest(table, row, call)
    if found is not None:
        hints, failed = found
        miss = HintMiss(table.kernel, bundle, table.variant_id(row), hints, failed, kinds=1)
        note_hint_miss(miss, began_ns, device)


def _richer(table: KernelTable, row: int) -> Iterator[Hints]:
    """Yield the sets with more hints than a row's that a variant of its meaning, config and derived constexprs has."""
    meanings, configs, hints, derived = (table.columns[name] for name in ("meaning", "config", "hints", "derived"))
    most = len(table.hint_sets[hints[row]])
    # rows are sorted by these
    first = bisect_left(meanings, meanings[row])
    last = bisect_right(meanings, meanings[row], first)
    first, last = bisect_left(configs, configs[row], first, last), bisect_right(configs, configs[row], first, last)
    for other in range(first, last):
        if derived[other] == derived[row] and len(table.hint_sets[hints[other]]) > most:
            yield table.hint_sets[hints[other]]


def _number(argument: Argument) -> str:
    if argument.kind == "pointer" and isinstance(argument.value, int):
        return hex(argument.value)
    return str(argument)
