"""One call set against one table: what the engine finds, and the words for it. Pure.

The engine holds the rules (``engine/select/select.h``): which variants serve a call, in which order, and which rule each other
variant breaks first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nojit.runtime import _core
from nojit.runtime.base.wording import shown
from nojit.runtime.call.call_facts import CallFacts, expression_value
from nojit.runtime.explain.refusals import refusal
from nojit.runtime.expr import expression as expr
from nojit.runtime.expr.expression import ExpressionError, parse
from nojit.runtime.table.parts import Missing
from nojit.runtime.table.table import KernelTable
from nojit.runtime.values import Value, spell

if TYPE_CHECKING:
    # most kernels are not tuned
    from nojit.runtime.tuning.lookup import Lookup

__all__ = ["Selection"]


class Selection:
    """A call and a table; knows for each part of the table what is wrong with it.

    Raises:
        ArgumentError: the call is one that the kernel can never take.
    """

    def __init__(self, table: KernelTable, facts: CallFacts, lookup: Lookup | None = None) -> None:
        self.table = table
        self.facts = facts
        self.where = f"kernel {table.kernel}"
        self.runtime = table.runtime_params()
        self.defaults: dict[str, Value] = {
            param.name: param.default
            for param in table.params
            if param.constexpr and not isinstance(param.default, Missing)
        }
        self.engine = _core.Selection(
            table.handle(),
            {**facts.arguments},
            {**facts.constexprs},
            {**facts.options},
            facts.arch or 0,
            None if lookup is None else lookup.ordering(table),
            self.where,
        )
        fault = self.engine.fault
        if fault is not None:
            raise refusal(table, facts, *fault, self.engine.fitting)
        self.fitting = self.engine.fitting
        """Of each signature, whether it takes the arguments."""
        self.wanted = self._matrix_values()

    def eligible(self) -> tuple[int, ...]:
        """List the rows that serve the call, the best first."""
        return self.engine.rows(False)

    def best(self) -> int | None:
        """Return the best of them, without a look at what comes after it."""
        return next(iter(self.engine.rows(True)), None)

    def axis_faults(self, case: int) -> list[str]:
        """Say in which matrix constexprs a case differs from the call."""
        point = self.table.cases[case].values
        axes = [(self.table.axes[place], point[place], self.wanted[place][1]) for place in self.engine.apart(case)]
        return [f"{axis.name} is {spell(axis.values[there])}, got {spell(value)}" for axis, there, value in axes]

    def setting_faults(self, config: int) -> list[str]:
        """Say in which constexprs and options a config differs from those that the caller asks for."""
        chosen = self.table.configs[config]
        built = {**self.defaults, **dict(chosen.constexprs + chosen.options)}
        asked = {**self.facts.constexprs, **self.facts.options}
        return [
            f"{name} is {spell(built[name])}, got {spell(asked[name])}" if name in built else f"{name} is not set"
            for name in self.engine.unset(config)
        ]

    def requires_fault(self, case: int, config: int) -> str:
        """Say which part of a config's ``requires`` does not hold."""
        requires = self.table.configs[config].requires
        try:
            expression = parse(requires)
        except ExpressionError as error:
            return f"requires {requires!r}, which is no expression: {error.message}"
        names = self.names(case, config, expression.names)
        for conjunct in expression.conjuncts():
            try:
                value = conjunct.evaluate(names)
            except ExpressionError as error:
                return f"requires {conjunct.text!r}, which cannot be evaluated: {error.message}"
            if value is not True:
                return f"requires {conjunct.text!r}{_with(conjunct, names)}"
        return f"requires {requires!r}"

    def derived_faults(self, row: int) -> list[str]:
        """Say which derived constexprs of a row are not what the call gives."""
        case, config, _, derived = self.table.key(row)
        built = self.table.derived_values[derived]
        faults = []
        for number in self.engine.underived(row):
            item = self.table.derived[number]
            try:
                expression = parse(item.expression)
                value = expression.evaluate(self.names(case, config, expression.names))
            except ExpressionError as error:
                faults.append(f"{item.name} is {item.expression!r}, which cannot be evaluated: {error.message}")
            else:
                faults.append(f"{item.name} is {spell(built[number])}, {item.expression!r} gives {shown(value)}")
        return faults

    def names(self, case: int, config: int, wanted: Iterable[str]) -> dict[str, expr.Value]:
        """Return what names in expressions stand for, as far as they stand for anything."""
        found: dict[str, expr.Value] = {}
        for name in wanted:
            there = self.engine.find(case, config, name)
            if there is True:
                found[name] = expression_value(self.facts.arguments[name])
            elif there is not None:
                found[name] = expression_value(there[0])
        return found

    def _matrix_values(self) -> dict[int, tuple[int | None, Value]]:
        """Return, for each constexpr axis, the number of the value that the call means, None if it was not built, and the value."""
        given = {**self.defaults, **self.facts.constexprs}
        return {
            place: (None if number < 0 else number, given[self.table.axes[place].name])
            for place, number in enumerate(self.engine.wanted)
            if not self.table.axes[place].is_type
        }


def _with(expression: expr.Expression, names: dict[str, expr.Value]) -> str:
    """Show what the names of an expression stand for."""
    words = [f"{name} = {_plain(names.get(name))}" for name in sorted(expression.names)]
    return f" ({', '.join(words)})" if words else ""


def _plain(value: expr.Value) -> str:
    if isinstance(value, expr.Pointer):
        return hex(value.address)
    return value if isinstance(value, str) else shown(value)
