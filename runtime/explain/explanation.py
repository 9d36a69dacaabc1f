"""Chooses the variant that serves a call, and says why each other one does not. Pure.

The engine chooses: among the variants that serve the call the one with the narrowest ints, then the config that is preferred, the
most hints, the first in the table. `choose` and `explain` go by the same rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.runtime.base.frozen_record import Record
from nojit.runtime.call.call_facts import Argument, CallFacts, accepts
from nojit.runtime.errors import NoMatchingVariantError
from nojit.runtime.explain.selection import Selection
from nojit.runtime.table.table import KernelTable
from nojit.runtime.values import Value

if TYPE_CHECKING:
    # most kernels are not tuned
    from nojit.runtime.tuning.lookup import Lookup, TuningDecision

__all__ = [
    "Argument",
    "CallFacts",
    "Choice",
    "Explanation",
    "accepts",
    "best",
    "choose",
    "explain",
]


# of variants that do not serve a call, so many are told
_TOLD = 8


class Choice(Record):
    """The variant that serves a call."""

    row: int
    """Of the table."""
    considered: tuple[int, ...]
    """Every eligible row, the chosen one first, then the next best."""


class Explanation(Record):
    """The variant that serves a call, and the reason why each other one does not."""

    chosen: str | None
    """Its label; None if no variant serves the call."""
    row: int | None
    """Its row in the table."""
    rejected: tuple[tuple[str, str], ...]
    """The label of each other variant and the reason, the nearest first."""
    config: dict[str, Value]
    """Its config's constexprs and options, by name; empty if there is none."""
    case: dict[str, Value]
    """Its value of each axis of the matrix; empty if there is none."""
    key: dict[str, int]
    """Each expression of the tuning key with its value, which decide the best config; empty if there is no key."""
    tuning: TuningDecision | None
    """The tuning table's decision for the call; None if it does not know the case, or there is no table."""

    def __str__(self) -> str:
        """Say it in lines: what runs, what decided, and why the nearest others do not run."""
        lines = ["runs " + self.chosen if self.chosen is not None else "no variant serves the call"]
        if self.tuning is not None:
            near = "" if self.tuning.exact else ", the nearest problem"
            lines.append(
                f"  first by {self.tuning.source}, {self.tuning.device or 'of no device'} at {self.tuning.at}{near}"
            )
        lines += [f"  not {label}: {reason}" for label, reason in self.rejected[:_TOLD]]
        more = len(self.rejected) - _TOLD
        return "\n".join([*lines, *([f"  and {more} more, in `rejected`"] if more > 0 else [])])


def choose(table: KernelTable, facts: CallFacts, lookup: Lookup | None = None) -> Choice:
    """Choose the variant that serves a call.

    Args:
        table: the kernel's variants.
        facts: the call.
        lookup: the kernel's tuning on the call's device: orders the configs of each case; those that it leaves out
            follow in the table's order, as all do without it.

    Raises:
        ArgumentError: an argument is missing, unknown or of a kind that the kernel cannot take, or a matrix constexpr
            has neither a value nor a default.
        NoMatchingVariantError: no variant serves the call; says why the nearest do not, and what would build one.
    """
    selection = Selection(table, facts, lookup)
    rows = selection.eligible()
    if not rows:
        raise _no_match(selection, explained=True)
    return Choice(rows[0], rows)


def best(table: KernelTable, facts: CallFacts, lookup: Lookup | None = None, *, explained: bool = True) -> int:
    """Return the row that `choose` chooses, without a look at what comes after it.

    Args:
        table: as for `choose`.
        facts: as for `choose`.
        lookup: as for `choose`.
        explained: whether the error for a call that no variant serves says why: to find that out, every row is looked at.

    Raises:
        ArgumentError: as `choose`.
        NoMatchingVariantError: as `choose`.
    """
    selection = Selection(table, facts, lookup)
    row = selection.best()
    if row is None:
        raise _no_match(selection, explained=explained)
    return row


def _no_match(selection: Selection, *, explained: bool) -> NoMatchingVariantError:
    from nojit.runtime.explain.misses import no_match

    return no_match(selection, explained=explained)


def explain(table: KernelTable, facts: CallFacts, lookup: Lookup | None = None) -> Explanation:
    """Say which variant `choose` would choose, and why not each other one.

    Raises:
        ArgumentError: as `choose`.
    """
    from nojit.runtime.explain.misses import rejections

    selection = Selection(table, facts, lookup)
    row = selection.best()
    case = None if row is None else table.columns["case"][row]
    key = selection.engine.numbers
    return Explanation(
        chosen=None if row is None else table.label(row),
        row=row,
        rejected=tuple((table.label(other.row), other.reason) for other in rejections(selection, row)),
        config={} if row is None else table.settings(row),
        case={} if case is None else table.axis_values(case),
        key={} if lookup is None else dict(zip(lookup.tuning.key, key, strict=True)),
        tuning=None if lookup is None or case is None else lookup.decision(key, table, case),
    )
