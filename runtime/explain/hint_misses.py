"""Report the set of hints that a specialization just misses, so that it runs a variant with fewer. Done once per specialization."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter_ns

from nojit.runtime.call.call_facts import Argument, CallFacts, leaf_of
from nojit.runtime.explain.selection import Selection
from nojit.runtime.observe.events import HintMiss, note_hint_miss
from nojit.runtime.table.table import KernelTable

__all__ = ["hinted", "note"]


def hinted(path: str, arguments: Mapping[str, Argument]) -> str:
    """Return the argument of a hint as text."""
    argument = leaf_of(arguments, path)
    if argument is None:
        return "none there"
    return hex(argument.value) if argument.kind == "pointer" and isinstance(argument.value, int) else str(argument)


def note(table: KernelTable, row: int, hint_set: int, call: CallFacts, *, bundle: str, device: int) -> None:
    """Count and report a hint miss of the specialization of a call.

    Args:
        table: the kernel's variants.
        row: the selected row.
        hint_set: the set that the call just misses.
        call: the call.
        bundle: id of the table's bundle.
        device: ordinal of the device.
    """
    began_ns = perf_counter_ns()
    hints = table.hint_sets[hint_set]
    failing = Selection(table, call).engine.failing(hint_set)
    failed = tuple([(*hints[place], hinted(hints[place][0], call.arguments)) for place in failing])
    miss = HintMiss(table.kernel, bundle, table.variant_id(row), hints, failed, kinds=1)
    note_hint_miss(miss, began_ns, device)
