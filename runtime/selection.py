"""One call set against one table: the rules of selection, each worked out once. Pure.

A variant is *eligible* if its types take the arguments, its matrix constexprs are the call's, its config is one that the
caller's own settings allow and whose ``requires`` holds, its derived constexprs are what the call gives, and all its
hints hold. What cannot be evaluated for a call (an overflow, a u64 beyond 63 bits) counts as not holding.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias, overload

from nojit.runtime import expr
from nojit.runtime.call import (
    Argument,
    CallFacts,
    accepts,
    expression_value,
    hint_holds,
    leaf_of,
    slot_bits,
)
from nojit.runtime.errors import ArgumentError, shown
from nojit.runtime.expr import ExpressionError, parse
from nojit.runtime.refusals import check_kinds, check_names, check_untyped
from nojit.runtime.table import KernelTable, Missing
from nojit.runtime.values import Value, identity, spell

__all__ = ["Preference", "Selection"]

Preference: TypeAlias = Callable[[int], Sequence[int]]
"""The configs of a meaning by number, the best first; those left out follow in the table's order."""


class _Ranks:
    """The place of each config in the order of each meaning.

    Args:
        count: how many configs there are.
        preference: None for the table's order throughout.
    """

    def __init__(self, count: int, preference: Preference | None) -> None:
        self._count = count
        self._preference = preference
        self._known: dict[int, Sequence[int]] = {}
        # by identity, and held so that no other comes to have it: meanings that are tuned alike have one and the same
        self._by_order: dict[int, tuple[Sequence[int], Sequence[int]]] = {}

    def of(self, meaning: int) -> Sequence[int]:
        """Return the place of each config, by number."""
        if self._preference is None:
            return range(self._count)
        if meaning not in self._known:
            order = self._preference(meaning)
            if id(order) not in self._by_order:
                self._by_order[id(order)] = (order, _Places(order, self._count))
            _, self._known[meaning] = self._by_order[id(order)]
        return self._known[meaning]


class _Places(Sequence[int]):
    """The place of each config in an order; those that it leaves out follow in the table's order."""

    def __init__(self, order: Sequence[int], count: int) -> None:
        self._count = count
        self._listed = {config: place for place, config in enumerate(dict.fromkeys(order))}
        self._sorted = sorted(self._listed)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, config: int) -> int: ...
    @overload
    def __getitem__(self, config: slice) -> Sequence[int]: ...
    def __getitem__(self, config: int | slice) -> int | Sequence[int]:
        if isinstance(config, slice):
            return [self[place] for place in range(*config.indices(self._count))]
        place = self._listed.get(config)
        return config + len(self._sorted) - bisect_left(self._sorted, config) if place is None else place


class Selection:
    """A call and a table; knows for each part of the table what is wrong with it.

    Raises:
        ArgumentError: the call is one that the kernel can never take.
    """

    def __init__(self, table: KernelTable, facts: CallFacts, preference: Preference | None = None) -> None:
        self.table = table
        self.facts = facts
        self.where = f"kernel {table.kernel}"
        self.runtime = table.runtime_params()
        self.defaults: dict[str, Value] = {
            param.name: param.default
            for param in table.params
            if param.constexpr and not isinstance(param.default, Missing)
        }
        check_names(table, facts)
        # the types of each param that take its argument
        self.taken = {
            name: [kind for kind in types if accepts(kind, facts.arguments[name])]
            for name, types in table.param_types().items()
        }
        check_kinds(table, facts, self.taken)
        self.wanted = self._matrix_values()
        self.fitting = self._fitting()
        check_untyped(table, facts, self.fitting)
        self.setting_faults = self._setting_faults()
        self.ranks = _Ranks(len(table.configs), preference)
        # each by the config and by what of the meaning its expression asks for
        self._asked_axes: dict[str, tuple[int, ...]] = {}
        self._requires_faults: dict[tuple[int, ...], str] = {}
        self._derived: dict[tuple[int, ...], expr.Value | ExpressionError] = {}
        self._derived_rows = {
            tuple(identity(expression_value(value)) for value in values): number
            for number, values in enumerate(table.derived_values)
        }

    def eligible(self) -> Iterator[int]:
        """List the rows that serve the call, the best first; of a config nothing is evaluated before its turn."""
        hints, derived = self.table.columns["hints"], self.table.columns["derived"]
        served: dict[int, bool] = {}
        for _, group in groupby(sorted(self._candidates()), itemgetter(0, 1)):
            found: list[tuple[int, int]] = []
            for _, _, meaning, config, first, end in group:
                if self.requires_fault(meaning, config):
                    continue
                number = self._derived_rows.get(self._derived_key(meaning, config))
                for row in range(first, end):
                    if derived[row] != number:
                        continue
                    hint_set = self.table.hint_sets[hints[row]]
                    if hints[row] not in served:
                        served[hints[row]] = self._hints_hold(hint_set)
                    if served[hints[row]]:
                        found.append((-len(hint_set), row))
            for _, row in sorted(found):
                yield row

    def _candidates(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        """Yield the configs that the caller's settings allow: width of ints, rank, meaning, config, rows from and to."""
        for meaning in self._meanings():
            bits = self.bits(self.table.meanings[meaning].signature)
            ranks = self.ranks.of(meaning)
            for config, first, end in self._configs_of(meaning):
                if not self.setting_faults[config]:
                    yield bits, ranks[config], meaning, config, first, end

    def key(self, row: int) -> tuple[int, int, int, int]:
        """Return what eligible rows are ordered by: narrow ints, preferred config, many hints, place in the table."""
        meaning, config, hints, _ = self.table.key(row)
        bits = self.bits(self.table.meanings[meaning].signature)
        return bits, self.ranks.of(meaning)[config], -len(self.table.hint_sets[hints]), row

    def axis_faults(self, meaning: int) -> list[str]:
        """Say in which matrix constexprs a meaning differs from the call."""
        point = self.table.meanings[meaning].values
        return [
            f"{self.table.axes[axis].name} is {spell(self.table.axes[axis].values[point[axis]])}, got {spell(value)}"
            for axis, (number, value) in self.wanted.items()
            if point[axis] != number
        ]

    def requires_fault(self, meaning: int, config: int) -> str:
        """Say which part of a config's ``requires`` does not hold; empty if all do."""
        requires = self.table.configs[config].requires
        if not requires:
            return ""
        key = (config, *self._asked_of(requires, meaning))
        if key not in self._requires_faults:
            self._requires_faults[key] = self._requires_fault(requires, meaning, config)
        return self._requires_faults[key]

    def _asked_of(self, text: str, meaning: int) -> tuple[int, ...]:
        """Return the place of the meaning on each axis that an expression asks for: meanings of equal places are alike to it."""
        places = self._asked_axes.get(text)
        if places is None:
            try:
                names = parse(text).names
            except ExpressionError:
                names = frozenset()
            places = tuple([place for place, axis in enumerate(self.table.axes) if axis.name in names])
            self._asked_axes[text] = places
        point = self.table.meanings[meaning].values
        return tuple([point[place] for place in places])

    def _requires_fault(self, requires: str, meaning: int, config: int) -> str:
        try:
            expression = parse(requires)
        except ExpressionError as error:
            return f"requires {requires!r}, which is no expression: {error.message}"
        names = self.names(meaning, config, expression.names)
        for conjunct in expression.conjuncts():
            try:
                value = conjunct.evaluate(names)
            except ExpressionError as error:
                return f"requires {conjunct.text!r}, which cannot be evaluated: {error.message}"
            if value is not True:
                return f"requires {conjunct.text!r}{_with(conjunct, names)}"
        return ""

    def derived_value(self, meaning: int, config: int, number: int) -> expr.Value | ExpressionError:
        """Evaluate a derived constexpr, or return why it cannot be evaluated."""
        text = self.table.derived[number].expression
        key = (config, number, *self._asked_of(text, meaning))
        if key not in self._derived:
            try:
                expression = parse(text)
                value: expr.Value | ExpressionError = expression.evaluate(self.names(meaning, config, expression.names))
            except ExpressionError as error:
                value = error
            self._derived[key] = value
        return self._derived[key]

    def names(self, meaning: int, config: int, wanted: Iterable[str]) -> dict[str, expr.Value]:
        """Return what names in expressions stand for, as far as they stand for anything."""
        chosen = self.table.configs[config]
        holders: list[Mapping[str, Argument | Value]] = [
            {} if self.facts.arch is None else {"arch": self.facts.arch},
            dict(chosen.constexprs + chosen.options),
            self.table.axis_values(meaning),
            self.facts.arguments,
            self.defaults,
        ]
        found: dict[str, expr.Value] = {}
        for name in wanted:
            for values in holders:
                if name in values:
                    found[name] = expression_value(values[name])
                    break
        return found

    def _derived_key(self, meaning: int, config: int) -> tuple[tuple[Any, ...], ...]:
        # an error compares equal to no value that was compiled in
        return tuple(identity(self.derived_value(meaning, config, number)) for number in range(len(self.table.derived)))

    def _meanings(self) -> Iterator[int]:
        wanted = [(axis, number) for axis, (number, _) in self.wanted.items()]
        for number, meaning in enumerate(self.table.meanings):
            if self.fitting[meaning.signature]:
                for axis, value in wanted:
                    if meaning.values[axis] != value:
                        break
                else:
                    yield number

    def _configs_of(self, meaning: int) -> Iterator[tuple[int, int, int]]:
        """Yield each config of a meaning, with its first row and the row after its last."""
        meanings, configs = self.table.columns["meaning"], self.table.columns["config"]
        row = bisect_left(meanings, meaning)
        last = bisect_right(meanings, meaning, row)
        while row < last:
            end = bisect_right(configs, configs[row], row, last)
            yield configs[row], row, end
            row = end

    def _matrix_values(self) -> dict[int, tuple[int | None, Value]]:
        """Find, for each constexpr axis, the value that the call means and its number; None if it was not built."""
        wanted: dict[int, tuple[int | None, Value]] = {}
        for place, axis in enumerate(self.table.axes):
            if axis.is_type:
                continue
            if axis.name in self.facts.constexprs:
                value = self.facts.constexprs[axis.name]
            elif axis.name in self.defaults:
                value = self.defaults[axis.name]
            else:
                built = ", ".join(map(spell, axis.values))
                raise ArgumentError(
                    f"expected a value for {axis.name}, one of {built}", where=self.where, argument=axis.name
                )
            wanted[place] = (_place(axis.values, value), value)
        return wanted

    def _fitting(self) -> list[bool]:
        """Say for each signature whether it takes the arguments."""
        kinds = self.table.param_types()
        picky = [
            (place, self.taken[name]) for place, name in enumerate(self.runtime) if self.taken[name] != [*kinds[name]]
        ]
        fitting = [True] * len(self.table.signatures)
        for number, types in enumerate(self.table.signatures):
            for place, taken in picky:
                if types[place] not in taken:
                    fitting[number] = False
                    break
        return fitting

    def bits(self, signature: int) -> int:
        """Return the width of a signature's ints together."""
        return sum(map(slot_bits, self.table.signatures[signature]))

    def _setting_faults(self) -> list[list[str]]:
        """Say for each config in which constexprs and options it differs from what the caller asks for."""
        axes = {axis.name for axis in self.table.axes}
        asked = {name: value for name, value in self.facts.constexprs.items() if name not in axes}
        asked.update(self.facts.options)
        if not asked:
            return [[]] * len(self.table.configs)
        built = [{**self.defaults, **dict(config.constexprs + config.options)} for config in self.table.configs]
        return [_differences(settings, asked) for settings in built]

    def _hints_hold(self, hints: tuple[tuple[str, int], ...]) -> bool:
        arguments = self.facts.arguments
        for name, hint in hints:
            argument = arguments[name] if name in arguments else leaf_of(arguments, name)
            if argument is None or not hint_holds(argument, hint):
                return False
        return True


def _differences(built: Mapping[str, Value], asked: Mapping[str, Value]) -> list[str]:
    return [
        f"{name} is {spell(built[name])}, got {spell(value)}" if name in built else f"{name} is not set"
        for name, value in asked.items()
        if name not in built or identity(built[name]) != identity(value)
    ]


def _place(values: tuple[Value, ...], value: Value) -> int | None:
    # == finds it at once, unless an equal value of another type, such as True for 1, stands before it
    place = values.index(value) if value in values else None
    if place is not None and identity(values[place]) == identity(value):
        return place
    return next((place for place, built in enumerate(values) if identity(built) == identity(value)), None)


def _with(expression: expr.Expression, names: dict[str, expr.Value]) -> str:
    """Show what the names of an expression stand for."""
    words = [f"{name} = {_plain(names.get(name))}" for name in sorted(expression.names)]
    return f" ({', '.join(words)})" if words else ""


def _plain(value: expr.Value) -> str:
    if isinstance(value, expr.Pointer):
        return hex(value.address)
    return value if isinstance(value, str) else shown(value)
