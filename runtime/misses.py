"""Explain why variants do not match a call; `nojit.runtime.advice` says which manifest lines would build one that does. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nojit.runtime.advice import advise
from nojit.runtime.call import expression_value, mismatch
from nojit.runtime.errors import NoMatchingVariantError, shown
from nojit.runtime.expr import ExpressionError
from nojit.runtime.observe.hint_misses import failing
from nojit.runtime.record import Record
from nojit.runtime.selection import Selection
from nojit.runtime.values import identity, spell

__all__ = ["Rejection", "no_match", "rejections"]

_REASONS_MAX: Final = 8

# how many rules a variant passes, in the order of the rules
_TYPES, _MATRIX, _SETTINGS, _REQUIRES, _DERIVED, _HINTS, _SERVES = range(7)


class Rejection(Record):
    """Why a row does not match a call, or is not the selected one."""

    row: int
    stage: int
    """The first rule that the row breaks."""
    faults: tuple[str, ...]

    @property
    def reason(self) -> str:
        """All reasons as text."""
        return "; ".join(self.faults)

    @property
    def distance(self) -> tuple[int, int, int]:
        """Sort key: how far the row is from matching the call; the nearest row sorts first."""
        return -self.stage, len(self.faults), self.row


def rejections(selection: Selection, best: int | None) -> list[Rejection]:
    """Explain for each row except `best` why it does not serve the call, nearest row first."""
    rejecter = _Rejecter(selection, best)
    rows = (row for row in range(len(selection.table)) if row != best)
    return sorted((rejecter.reject(row) for row in rows), key=lambda rejection: rejection.distance)


def no_match(selection: Selection, *, explained: bool = True) -> NoMatchingVariantError:
    """Return the error for a call without a matching variant; with reasons if `explained` is true."""
    table = selection.table
    misses = rejections(selection, None) if explained else []
    distinct: dict[str, Rejection] = {}
    for miss in misses:
        distinct.setdefault(miss.reason, miss)
        if len(distinct) == _REASONS_MAX:
            break
    reasons = tuple((table.label(miss.row), reason) for reason, miss in distinct.items())
    what = "no variant serves this call"
    if misses:
        what += f"; its manifest needs {advise(selection, misses[0].row)}"
    return NoMatchingVariantError(what, where=selection.where, reasons=reasons)


class _Rejecter:
    """Check of rows against a call; it reads each part of the table once."""

    def __init__(self, selection: Selection, best: int | None) -> None:
        self._selection = selection
        self._best = best
        self._types: dict[int, tuple[str, ...]] = {}
        self._hints: dict[int, tuple[str, ...]] = {}
        # results for the last case: rows of one case are neighbours
        self._meaning = -1
        self._meant: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def reject(self, row: int) -> Rejection:
        """Return the first rule that a row breaks."""
        return next(Rejection(row, stage, faults) for stage, faults in self._rules(row) if faults)

    def _rules(self, row: int) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield each rule in order, with the row's violations of it."""
        selection = self._selection
        meaning, config, hints, derived = selection.table.key(row)
        types, matrix = self._of_meaning(meaning)
        yield _TYPES, types
        yield _MATRIX, matrix
        yield _SETTINGS, tuple(selection.setting_faults[config])
        yield _REQUIRES, tuple(filter(None, [selection.requires_fault(meaning, config)]))
        yield _DERIVED, tuple(_derived_faults(selection, meaning, config, derived))
        if hints not in self._hints:
            self._hints[hints] = tuple(_hint_faults(selection, selection.table.hint_sets[hints]))
        yield _HINTS, self._hints[hints]
        yield _SERVES, (_outranked(selection, row, self._best),)

    def _of_meaning(self, meaning: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the faults of a case (of its types and matrix constexprs), and those of its matrix constexprs alone."""
        if meaning != self._meaning:
            signature = self._selection.table.meanings[meaning].signature
            if signature not in self._types:
                faults = _type_faults(self._selection, signature)
                self._types[signature] = tuple([f"{name}: {reason}" for name, reason in faults])
            types, matrix = self._types[signature], tuple(self._selection.axis_faults(meaning))
            self._meaning, self._meant = meaning, (types + matrix if types and matrix else types, matrix)
        return self._meant


def _type_faults(selection: Selection, signature: int) -> list[tuple[str, str]]:
    """List the params whose type in a signature does not take the argument, with the reason."""
    reasons = [
        (name, mismatch(kind, selection.facts.arguments[name]))
        for name, kind in zip(selection.runtime, selection.table.signatures[signature], strict=True)
    ]
    return [(name, reason) for name, reason in reasons if reason]


def _hint_faults(selection: Selection, hints: tuple[tuple[str, int], ...]) -> list[str]:
    """List the hints of a set that are false for the call."""
    return [
        f"expects {name} {'equal to 1' if hint == 1 else f'divisible by {hint}'}, got {got}"
        for name, hint, got in failing(hints, selection.facts.arguments)
    ]


def _derived_faults(selection: Selection, meaning: int, config: int, derived: int) -> list[str]:
    faults = []
    for number, (item, built) in enumerate(
        zip(selection.table.derived, selection.table.derived_values[derived], strict=True)
    ):
        value = selection.derived_value(meaning, config, number)
        if isinstance(value, ExpressionError):
            faults.append(f"{item.name} is {item.expression!r}, which cannot be evaluated: {value.message}")
        elif identity(value) != identity(expression_value(built)):
            faults.append(f"{item.name} is {spell(built)}, {item.expression!r} gives {shown(value)}")
    return faults


def _outranked(selection: Selection, row: int, best: int | None) -> str:
    if best is None:
        return "serves the call"
    words = ("narrower ints win", "another config comes first", "more hints win", "the first of equals wins")
    pairs = zip(selection.key(row), selection.key(best), words, strict=True)
    return "serves too, but " + next(reason for mine, others, reason in pairs if mine != others)
