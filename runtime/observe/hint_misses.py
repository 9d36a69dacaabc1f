"""Find the set of hints that a specialization just misses, so that it runs a variant with fewer. Done once per specialization."""

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
    """Return whether a variant with the same case, config and derived constexprs as a row has more hints."""
    return next(_richer(table, row), None) is not None


def nearest(table: KernelTable, row: int, call: CallFacts) -> tuple[Hints, tuple[tuple[str, int, str], ...]] | None:
    """Find the set of hints that a call just misses: at least as many hints are true as false, and the fewest are false.

    Returns:
        The set, and its false hints with their values as text; None if no set is near.
    """
    missed = [(hints, failing(hints, call.arguments)) for hints in _richer(table, row)]
    near = [(len(failed), -len(hints), hints, failed) for hints, failed in missed if 0 < 2 * len(failed) <= len(hints)]
    if not near:
        return None
    _, _, hints, failed = min(near)
    return hints, failed


def failing(hints: Hints, arguments: Mapping[str, Argument]) -> tuple[tuple[str, int, str], ...]:
    """List the hints of a set that are false for a call, each with the value as text."""
    found = []
    for path, hint in hints:
        argument = leaf_of(arguments, path)
        if argument is None or not hint_holds(argument, hint):
            found.append((path, hint, "none there" if argument is None else _number(argument)))
    return tuple(found)


def note(table: KernelTable, row: int, call: CallFacts, *, bundle: str, device: int) -> None:
    """Count and report a hint miss, if the specialization of a call just misses a set of hints.

    Args:
        table: the kernel's variants.
        row: the selected row.
        call: the call.
        bundle: id of the table's bundle.
        device: ordinal of the device.
    """
    began_ns = perf_counter_ns()
    found = nearest(table, row, call)
    if found is not None:
        hints, failed = found
        miss = HintMiss(table.kernel, bundle, table.variant_id(row), hints, failed, kinds=1)
        note_hint_miss(miss, began_ns, device)


def _richer(table: KernelTable, row: int) -> Iterator[Hints]:
    """Yield the sets of hints of variants with the row's case, config and derived constexprs that have more hints than the row."""
    meanings, configs, hints, derived = (table.columns[name] for name in ("meaning", "config", "hints", "derived"))
    most = len(table.hint_sets[hints[row]])
    # rows are sorted by these columns
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
