"""Advise which manifest lines would serve a call that no variant matches. Pure.

A table contains what was built, not the manifest. The variants show which axis types a param, and which combinations a rule leaves
out. Each line of advice can go into a manifest as it is::

    w_ptr = "*{w_dtype}"                              in [kernel.params]
    dtype = ["fp16", "bf16"]                          in [kernel.matrix]
    [[kernel.configs]] with BLOCK = 32, num_warps = 4
    LANES with 256 among its values                   in [kernel.derived]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from nojit.runtime.base.frozen_record import Record
from nojit.runtime.base.launch_options import BUILT_WITH
from nojit.runtime.base.wording import shown
from nojit.runtime.call.call_facts import NONE, Argument, accepts, expression_value, natural_type
from nojit.runtime.explain.selection import Selection
from nojit.runtime.expr.expression import ExpressionError, parse
from nojit.runtime.expr.expression import Value as Operand
from nojit.runtime.table.parts import Axis
from nojit.runtime.types.constants import constant_type
from nojit.runtime.types.names import descriptor_parts, is_descriptor, is_tuple, members
from nojit.runtime.values import DType, FunctionRef, Value, identity, spell

__all__ = ["advise"]


class _HopelessError(Exception):
    """Raised if no edit of the manifest would serve the call."""


class _Typed(Record):
    """A param whose type contains an axis of the matrix."""

    prefix: str
    """Text before the axis: ``*`` or ``*k`` for pointers, empty for ints."""
    axis: Axis
    optional: bool
    """Whether None is built too."""

    def spelling(self, axis: str = "") -> str:
        """Return the type as text, with its axis or another one."""
        return f"{self.prefix}{{{axis or self.axis.name}}}{'?' * self.optional}"


def advise(selection: Selection, row: int) -> str:
    """Return the manifest lines that would serve a call, joined by ``and``.

    Args:
        selection: the call and the table.
        row: the variant that is nearest to matching the call.
    """
    adviser = _Adviser(selection, row)
    try:
        lines = [*adviser.types(), *adviser.matrix()]
    except _HopelessError as error:
        return str(error)
    meant = adviser.meant()
    if not lines and not meant:
        return adviser.combination()
    lines += adviser.config(meant)
    lines += adviser.derived()
    if not lines:
        lines = [adviser.left_out()]
    return f"{' and '.join(dict.fromkeys(lines))}{''.join(adviser.notes)}"


class _Adviser:
    def __init__(self, selection: Selection, row: int) -> None:
        self._call = selection
        self._table = selection.table
        self._case, self._config, self._hints, self._derived = self._table.key(row)
        self._arguments = selection.facts.arguments
        # values of the axes for the call, with the changes that the advice makes
        self._axes: dict[str, Value] = dict(self._table.axis_values(self._case))
        self._axes.update({self._table.axes[place].name: value for place, (_, value) in selection.wanted.items()})
        self._settings: Mapping[str, Value] | None = None
        self._candidates = self._all_candidates()
        self.notes: list[str] = []

    def meant(self) -> frozenset[int]:
        """Return the cases that the call can have and for which variants were built."""
        wanted = [(axis, number) for axis, (number, _) in self._call.wanted.items()]
        return frozenset(
            number
            for number in {*self._table.columns["case"]}
            if self._call.fitting[(case := self._table.cases[number]).signature]
            and all(case.values[axis] == value for axis, value in wanted)
        )

    def combination(self) -> str:
        """Return the advice for a combination that the manifest leaves out."""
        table = self._table
        point = [f"{table.axes[place].name} = {_toml(value)}" for place, (_, value) in self._call.wanted.items()]
        words = ", ".join(point) or "these types"
        return f"the combination of {words}, which an `exclude`, the list of points or the profile leaves out"

    # -- case --

    def types(self) -> list[str]:
        """Return the lines that type params; none if a signature takes the arguments."""
        if any(self._call.fitting):
            return []
        signature = self._table.signatures[self._table.cases[self._case].signature]
        wrong = [
            name
            for name, kind in zip(self._call.runtime, signature, strict=True)
            if not accepts(kind, self._arguments[name])
        ]
        typed = _assigned(self._candidates)
        lines: dict[str, str] = {}
        touched: list[str] = []
        for name in wrong:
            of = typed.get(name)
            kind = self._arguments[name].kind
            if of is None or kind not in ("pointer", "int", "none"):
                lines |= self._own_type(name)
                continue
            if kind == "none":
                lines[name] = f'"{of.spelling().removesuffix("?")}?"'
            elif of.axis.name not in touched:
                lines |= self._axis_lines(of.axis, {one: how for one, how in typed.items() if how.axis is of.axis})
            touched.append(of.axis.name)
        # the table does not always show which axis types a param, so the advice includes these lines
        unclear = {name: f'"{typed[name].spelling()}"' for name in self._unclear(touched)}
        return [f"{name} = {value}" for name, value in (unclear | lines).items()]

    def _unclear(self, axes: Sequence[str]) -> list[str]:
        """List the params that these axes, or axes with common params, may or may not type."""
        spelling: dict[str, list[str]] = {}
        for name, options in self._candidates.items():
            for axis in {option.axis.name for option in options}:
                spelling.setdefault(axis, []).append(name)
        # in order of discovery
        reached, looked_at = dict.fromkeys(axes), dict[str, bool]()
        waiting = [*reached]
        for axis in waiting:
            for name in spelling.get(axis, ()):
                if name not in looked_at:
                    known = [option.axis for option in self._candidates[name]]
                    looked_at[name] = len(known) > 1 or len(known[0].values) == 1
                    waiting += [one.name for one in known if one.name not in reached]
                    reached |= dict.fromkeys(one.name for one in known)
        return [name for name, unclear in looked_at.items() if unclear]

    def _all_candidates(self) -> dict[str, list[_Typed]]:
        """List for each param the axes that may type it: those whose values correspond to its types."""
        cases = self._table.cases
        used = [*dict.fromkeys(case.signature for case in cases)]
        spelled: list[tuple[Axis, str, list[str]]] = []
        for number, axis in enumerate(self._table.axes):
            if axis.is_type:
                pairs = {(each.signature, each.values[number]) for each in cases}
                beside = {signature: str(axis.values[value]) for signature, value in pairs}
                # values that occur with one type: the axis does not determine the type, or the type is None
                unclear = {signature for signature, count in Counter(first for first, _ in pairs).items() if count > 1}
                for prefix in ("*", "*k", ""):
                    types = ["" if each in unclear else prefix + beside[each] for each in used]
                    spelled.append((axis, prefix, types))
        signatures = [self._table.signatures[number] for number in used]
        found: dict[str, list[_Typed]] = {}
        for place, name in enumerate(self._call.runtime):
            kinds = [signature[place] for signature in signatures]
            found[name] = [_Typed(prefix, axis, NONE in kinds) for axis, prefix, types in spelled if _go(kinds, types)]
        return found

    def _axis_lines(self, axis: Axis, shared: Mapping[str, _Typed]) -> dict[str, str]:
        """Return the lines for the values that an axis lacks, and for params that need an axis of their own."""
        wanted = {name: self._element(name, typed) for name, typed in shared.items()}
        elements = [*dict.fromkeys(element for element in wanted.values() if element)]
        built = str(self._axes[axis.name])
        kept = built if built in elements else elements[0]
        self._axes[axis.name] = kept
        lines: dict[str, str] = {}
        if kept not in axis.values:
            lines[axis.name] = _list((*axis.values, kept))
        groups: dict[str, list[str]] = {}
        for name, element in wanted.items():
            if element not in ("", kept):
                groups.setdefault(element, []).append(name)
        for element, names in groups.items():
            own = self._new_axis(names[0])
            lines |= {name: f'"{shared[name].spelling(own)}"' for name in names}
            lines[own] = _list(dict.fromkeys((*axis.values, element)))
        if groups:
            apart = [name for names in groups.values() for name in names]
            need = "needs an axis of its own" if len(apart) == 1 else "need axes of their own"
            self.notes.append(
                f"; one axis, {axis.name!r}, types {', '.join(shared)}, so that {', '.join(apart)} {need}"
            )
        return lines

    def _element(self, name: str, typed: _Typed) -> str:
        """Return the axis value that takes an argument; empty if any value does."""
        argument = self._arguments[name]
        if argument.kind == "none" or (argument.kind == "pointer" and not argument.dtype):
            return ""
        values = [str(value) for value in typed.axis.values]
        # the built values, beginning with that of the nearest variant
        for value in dict.fromkeys((str(self._axes[typed.axis.name]), *values)):
            if accepts(f"{typed.prefix}{value}", argument):
                return value
        return argument.dtype or (self._wide(name) if argument.kind == "int" else "")

    def _wide(self, name: str) -> str:
        """Return the int type for an argument that no narrower type takes."""
        argument = self._arguments[name]
        wide = next((kind for kind in ("i64", "u64") if accepts(kind, argument)), None)
        if wide is None:
            raise _HopelessError(f"an int type for {name} that holds {shown(argument.value)}, and there is none")
        return wide

    def _new_axis(self, name: str) -> str:
        taken = {param.name for param in self._table.params} | {axis.name for axis in self._table.axes}
        own = f"{name.removesuffix('_ptr')}_dtype"
        while own in taken:
            own += "_"
        return own

    def _own_type(self, name: str) -> dict[str, str]:
        """Return the line that types a param without an axis."""
        argument = self._arguments[name]
        place = self._call.runtime.index(name)
        kinds = [*dict.fromkeys(signature[place] for signature in self._table.signatures)]
        built = [kind for kind in kinds if kind != NONE]
        optional = "?" if NONE in kinds else ""
        if argument.kind == "none" and built:
            return {name: f'"{built[0]}?"'}
        if argument.kind == "int" and not any(kind.startswith("(") for kind in built):
            return {name: f'"{self._wide(name)}{optional}"'}
        if argument.kind == "pointer" and argument.dtype and built and all(kind.startswith("*") for kind in built):
            prefix = "*k" if all(kind.startswith("*k") for kind in built) else "*"
            elements = dict.fromkeys((*(kind[1:].removeprefix("k") for kind in built), argument.dtype))
            own = self._new_axis(name)
            return {name: f'"{prefix}{{{own}}}{optional}"', own: _list(elements)}
        return {name: f'"{_spelling(argument, built[0] if built else NONE)}"'}

    def matrix(self) -> Iterator[str]:
        """Return the lines for values that constexpr axes lack."""
        for place, (number, value) in self._call.wanted.items():
            axis = self._table.axes[place]
            if number is None:
                yield f"{axis.name} = [{', '.join(map(_toml, (*axis.values, value)))}]"

    # -- config --

    def config(self, meant: frozenset[int]) -> Iterator[str]:
        """Return the line for a missing config; none if a config may run.

        Args:
            meant: the cases that the call can have; empty if no variants were built for its case.
        """
        configs = self._table.configs
        columns = zip(self._table.columns["case"], self._table.columns["config"], strict=True)
        built = {config for case, config in columns if case in meant}
        for number, config in sorted(enumerate(configs), key=lambda each: each[0] not in built):
            settings = dict(config.constexprs + config.options)
            if not self._call.engine.unset(number) and self._holds(config.requires, settings):
                self._settings = settings
                if meant and number not in built:
                    yield f"[[kernel.configs]] with {self._listed(settings)}, whose `when` leaves out what the call means"
                return
        facts = self._call.facts
        asked = {**facts.constexprs, **facts.options}
        axes = {axis.name for axis in self._table.axes}
        nearest = configs[self._config]
        settings = dict(nearest.constexprs + nearest.options)
        settings |= {name: value for name, value in asked.items() if name not in axes}
        self._settings = settings
        without = ", without `requires`" if any(config.requires for config in configs) else ""
        listed = self._listed(settings)
        yield f"[[kernel.configs]] with {listed}{without}" if listed else "a config without `requires`"

    def _listed(self, settings: Mapping[str, Value]) -> str:
        """Return the settings of a config as text, without options that have their default."""
        facts = self._call.facts
        asked = {**facts.constexprs, **facts.options}
        lines = [
            f"{name} = {_toml(value)}"
            for name, value in settings.items()
            if name in asked or name not in BUILT_WITH or identity(value) != identity(BUILT_WITH[name])
        ]
        return ", ".join(lines)

    def _holds(self, requires: str, settings: Mapping[str, Value]) -> bool:
        if not requires:
            return True
        value = self._evaluate(requires, settings)
        return value is True

    def _evaluate(self, text: str, settings: Mapping[str, Value]) -> Operand | ExpressionError:
        """Evaluate an expression as for a variant with these axes and settings."""
        arch = self._call.facts.arch
        holders: list[Mapping[str, Argument | Value]] = [
            {} if arch is None else {"arch": arch},
            settings,
            self._axes,
            self._arguments,
            self._call.defaults,
        ]
        try:
            expression = parse(text)
            names = {
                name: expression_value(next(values[name] for values in holders if name in values))
                for name in expression.names
                if any(name in values for values in holders)
            }
            return expression.evaluate(names)
        except ExpressionError as error:
            return error

    def derived(self) -> Iterator[str]:
        """Return the lines for missing values of derived constexprs that a manifest must list."""
        for number, item in enumerate(self._table.derived):
            value = self._evaluate(item.expression, self._settings or {})
            if isinstance(value, ExpressionError):
                yield f"a value for {item.name} that this call gives: {value}"
                return
            built = {identity(expression_value(values[number])) for values in self._table.derived_values}
            listed = parse(item.expression).names & {*self._call.runtime} and not isinstance(value, bool)
            if listed and identity(value) not in built:
                yield f"{item.name} with {shown(value)} among its values"

    def left_out(self) -> str:
        """Return the advice for a variant that a rule leaves out, although the manifest has all its values."""
        values = [self._evaluate(item.expression, self._settings or {}) for item in self._table.derived]
        cases = self.meant()
        wanted = [identity(value) for value in values]
        for row in range(len(self._table)):
            case, _, _, derived = self._table.key(row)
            there = [identity(expression_value(value)) for value in self._table.derived_values[derived]]
            if case in cases and there == wanted:
                return "the variants without hints, which `aligned_only` leaves out"
        return "the derived values that this call gives, which an `exclude` leaves out"


def _go(kinds: Sequence[str], types: Sequence[str]) -> bool:
    """Return whether two lists of types are equal, except where the first has None."""
    if kinds == types:
        return True
    if NONE not in kinds:
        return False
    given = [kind == one for kind, one in zip(kinds, types, strict=True) if kind != NONE]
    return bool(given) and all(given)


def _assigned(candidates: Mapping[str, Sequence[_Typed]]) -> dict[str, _Typed]:
    """Assign an axis to each param with candidates, so that as many axes as possible type a param: each axis must type one."""
    owner: dict[str, str] = {}

    def place(name: str, tried: set[str]) -> bool:
        for option in candidates[name]:
            axis = option.axis.name
            if axis not in tried:
                tried.add(axis)
                if axis not in owner or place(owner[axis], tried):
                    owner[axis] = name
                    return True
        return False

    for name in candidates:
        place(name, set())
    chosen = {name: axis for axis, name in owner.items()}
    return {
        name: next((option for option in options if option.axis.name == chosen.get(name)), options[0])
        for name, options in candidates.items()
        if options
    }


def _list(values: Iterable[Value]) -> str:
    return f"[{', '.join(map(_toml, values))}]"


def _spelling(argument: Argument, built: str) -> str:
    """Return a type that takes the argument as text; the built type, or the parts of it that do."""
    if accepts(built, argument):
        return built
    if argument.kind == "tuple":
        kinds = members(built) if is_tuple(built) else []
        kinds += [NONE] * (len(argument.items) - len(kinds))
        return f"({','.join(map(_spelling, argument.items, kinds))})"
    if argument.kind == "int":
        return natural_type(argument) or "i64"
    if argument.kind == "constant":
        return constant_type(argument.value)
    return {
        "pointer": f"*{argument.dtype}",
        "descriptor": f"tensordesc<{argument.dtype}[{','.join(_block(argument, built))}]>",
        "bool": "i1",
    }.get(argument.kind, natural_type(argument) or NONE)


def _block(argument: Argument, built: str) -> Sequence[str]:
    """Return a descriptor's block as text; if the call leaves it to the config, the block of `built` if it has the same rank."""
    sizes = argument.value if isinstance(argument.value, tuple) else ()
    if is_descriptor(built) and not any(sizes):
        block = descriptor_parts(built)[1]
        sizes = block if len(block) == len(sizes) else sizes
    return [str(size or "...") for size in sizes]


def _toml(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "{ none = true }"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, DType | FunctionRef):
        return f'{{ {"dtype" if isinstance(value, DType) else "function"} = "{value.name}" }}'
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return spell(value)
