"""Explain why variants do not match a call; `nojit.runtime.explain.advice` says which manifest lines would build one that does. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nojit.runtime import _core
from nojit.runtime.base.frozen_record import Record
from nojit.runtime.call.call_facts import mismatch
from nojit.runtime.errors import NoMatchingVariantError
from nojit.runtime.explain.advice import advise
from nojit.runtime.explain.hint_misses import hinted
from nojit.runtime.explain.selection import Selection

__all__ = ["Rejection", "no_match", "rejections"]

_REASONS_MAX: Final = 8


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


def rejections(selection: Selection, best: int | None) -> list[Rejection]:
    """Say why each row but the `best` is not the one that serves the call, the nearest first."""
    return list(_by_distance(selection, best))


def _by_distance(selection: Selection, best: int | None) -> Iterator[Rejection]:
    """Yield the rejection of each row but the `best`, the nearest first; keep nothing of one for the next, as there can be many."""
    rejecter = _Rejecter(selection, best)
    by_stage: list[list[int]] = [[] for _ in range(_core.RULE_NONE + 1)]
    for row, stage in enumerate(selection.engine.stages()):
        if row != best:
            by_stage[stage].append(row)
    for stage, rows in reversed([*enumerate(by_stage)]):
        by_count: dict[int, list[int]] = {}
        for row in rows:
            by_count.setdefault(len(rejecter.faults(row, stage)), []).append(row)
        for _, alike in sorted(by_count.items()):
            for row in alike:
                yield Rejection(row, stage, rejecter.faults(row, stage))


def no_match(selection: Selection, *, explained: bool = True) -> NoMatchingVariantError:
    """Return the error for a call without a matching variant; with reasons if `explained` is true."""
    table = selection.table
    distinct: dict[str, Rejection] = {}
    for miss in _by_distance(selection, None) if explained else ():
        distinct.setdefault(miss.reason, miss)
        if len(distinct) == _REASONS_MAX:
            break
    reasons = tuple((table.label(miss.row), reason) for reason, miss in distinct.items())
    what = "no variant serves this call"
    if distinct:
        what += f"; its manifest needs {advise(selection, next(iter(distinct.values())).row)}"
    return NoMatchingVariantError(what, where=selection.where, reasons=reasons)


class _Rejecter:
    """Says why rows do not serve; words each part of the table once."""

    def __init__(self, selection: Selection, best: int | None) -> None:
        self._selection = selection
        self._best = None if best is None else selection.engine.key(best)
        self._types: dict[int, tuple[str, ...]] = {}
        self._hints: dict[int, tuple[str, ...]] = {}
        self._requires: dict[tuple[int, int], tuple[str, ...]] = {}
        self._derived: dict[tuple[int, int, int], tuple[str, ...]] = {}
        # of the case that was looked at last: the rows of one are neighbours
        self._case = -1
        self._axes: tuple[str, ...] = ()

    def faults(self, row: int, stage: int) -> tuple[str, ...]:
        """Say how a row breaks the first rule that it breaks."""
        selection = self._selection
        case, config, hints, derived = selection.table.key(row)
        if stage in {_core.RULE_TYPES, _core.RULE_MATRIX}:
            signature = selection.table.cases[case].signature
            return (self._of_types(signature) if stage == _core.RULE_TYPES else ()) + self._of_axes(case)
        if stage == _core.RULE_SETTINGS:
            return tuple(selection.setting_faults(config))
        if stage == _core.RULE_REQUIRES:
            if (case, config) not in self._requires:
                self._requires[case, config] = (selection.requires_fault(case, config),)
            return self._requires[case, config]
        if stage == _core.RULE_DERIVED:
            if (case, config, derived) not in self._derived:
                self._derived[case, config, derived] = tuple(selection.derived_faults(row))
            return self._derived[case, config, derived]
        if stage == _core.RULE_NONE:
            return (_outranked(selection, row, self._best),)
        if hints not in self._hints:
            self._hints[hints] = tuple(_hint_faults(selection, hints))
        return self._hints[hints]

    def _of_types(self, signature: int) -> tuple[str, ...]:
        if signature not in self._types:
            self._types[signature] = tuple(_type_faults(self._selection, signature))
        return self._types[signature]

    def _of_axes(self, case: int) -> tuple[str, ...]:
        if case != self._case:
            self._case, self._axes = case, tuple(self._selection.axis_faults(case))
        return self._axes


def _type_faults(selection: Selection, signature: int) -> list[str]:
    """Say which params a signature types otherwise than the call."""
    types = selection.table.signatures[signature]
    misfits = [(selection.runtime[place], types[place]) for place in selection.engine.misfits(signature)]
    return [f"{name}: {mismatch(kind, selection.facts.arguments[name])}" for name, kind in misfits]


def _hint_faults(selection: Selection, hint_set: int) -> list[str]:
    """Say which hints of a set do not hold."""
    hints = selection.table.hint_sets[hint_set]
    failing = [hints[place] for place in selection.engine.failing(hint_set)]
    return [
        f"expects {name} {'equal to 1' if hint == 1 else f'divisible by {hint}'}, got {hinted(name, selection.facts.arguments)}"
        for name, hint in failing
    ]


def _outranked(selection: Selection, row: int, best: tuple[int, int, int, int] | None) -> str:
    if best is None:
        return "serves the call"
    words = ("narrower ints win", "another config comes first", "more hints win", "the first of equals wins")
    pairs = zip(selection.engine.key(row), best, words, strict=True)
    return "serves too, but " + next(reason for mine, others, reason in pairs if mine != others)
