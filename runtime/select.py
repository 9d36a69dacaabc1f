"""Chooses the variant that serves a call, and says why each other one does not. Pure.

Among the eligible variants (`nojit.runtime.selection` says which are), in this order: the narrowest ints, the config that
is preferred, the most hints, the first in the table. `choose` and `explain` go by the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence

from nojit.runtime.call import Argument, CallFacts, accepts
from nojit.runtime.interests import Interests, ParamInterest, interests
from nojit.runtime.misses import no_match, rejections
from nojit.runtime.record import Record
from nojit.runtime.selection import Selection
from nojit.runtime.table import KernelTable

__all__ = [
    "Argument",
    "CallFacts",
    "Choice",
    "Explanation",
    "Interests",
    "ParamInterest",
    "accepts",
    "choose",
    "explain",
    "interests",
]


class Choice(Record):
    """The variant that serves a call."""

    row: int
    """Of the table."""
    considered: tuple[int, ...]
    """Every eligible row, the chosen one first, then the next best."""


class Explanation(Record):
    """Which variant serves a call, and why each other one does not."""

    chosen: str | None
    """Its label; None if no variant serves the call."""
    row: int | None
    """Its row in the table."""
    rejected: tuple[tuple[str, str], ...]
    """The label of each other variant and the reason, the nearest first."""


def choose(table: KernelTable, facts: CallFacts, preference: Sequence[int] | None = None) -> Choice:
    """Choose the variant that serves a call.

    Args:
        table: the kernel's variants.
        facts: the call.
        preference: configs by number, the best first, as a tuning table orders them; those that it leaves out follow
            in the table's order.

    Raises:
        ArgumentError: an argument is missing, unknown or of a kind that the kernel cannot take, or a matrix constexpr
            has neither a value nor a default.
        NoMatchingVariantError: no variant serves the call; says why the nearest do not, and what would build one.
    """
    selection = Selection(table, facts, preference)
    rows = selection.eligible()
    if not rows:
        raise no_match(selection)
    return Choice(rows[0], rows)


def explain(table: KernelTable, facts: CallFacts, preference: Sequence[int] | None = None) -> Explanation:
    """Say which variant `choose` would choose, and why not each other one.

    Raises:
        ArgumentError: as `choose`.
    """
    selection = Selection(table, facts, preference)
    best = next(iter(selection.eligible()), None)
    return Explanation(
        chosen=None if best is None else table.label(best),
        row=best,
        rejected=tuple((table.label(other.row), other.reason) for other in rejections(selection, best)),
    )
