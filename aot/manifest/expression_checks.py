"""Type checks of all expressions in a kernel's manifest entry: their names, operands and results. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from nojit.aot.manifest import expression_tree
from nojit.aot.manifest.config_rules import CONFIG_RULES, told_options
from nojit.aot.manifest.expression_tree import Name, Node, Operation
from nojit.aot.manifest.matrix import plain_value, read_value, typed_params
from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.manifest.options import OPTIONS, TOOLCHAIN, option_value
from nojit.aot.manifest.type_checker import (
    ANY,
    BOOL,
    INT,
    Case,
    Kind,
    Known,
    Term,
    TypeMistake,
    check,
    kind_of,
    term_of,
)
from nojit.aot.manifest.types import BOOLS, FLOATS, INTS, NONE, axes_in, fill
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import ManifestError
from nojit.runtime.expr import expression as expr
from nojit.runtime.expr.operations import Op
from nojit.runtime.expr.operations import Value as Operand
from nojit.runtime.table.parts import Missing, Param
from nojit.runtime.tuning.tuned_tables import TunedConfig
from nojit.runtime.values import Value, identity

if TYPE_CHECKING:
    from nojit.aot.manifest.spec import KernelSpec

__all__ = ["asks_values", "check_requires", "check_rules"]

_Settings: TypeAlias = Mapping[str, tuple[Operand, ...]]
"""Possible values of each constexpr and option of one config, by name.

A config of a manifest has one value for each name; a tuning space has several.
"""

_CASES_MAX: Final = 4096
"""Maximum number of combinations of values that the check goes through one by one.

Beyond it, the check gives each name the union of its types at once, and so finds fewer mistakes.
"""


def check_rules(
    spec: KernelSpec,
    place: str,
    mistakes: Mistakes,
    params: Sequence[Param] | None = None,
    tuned: Sequence[Mapping[str, Value]] = (),
) -> None:
    """Add a mistake for each expression of an entry that does not parse, has an unknown name, or can have a type error.

    Args:
        spec: the manifest entry of the kernel.
        place: key path of this entry in the manifest, such as ``$.kernel[0]``.
        mistakes: receives the mistakes.
        params: params of the kernel function; None if they are unknown. Then any unknown name passes as a constexpr
            that has a default value.
        tuned: constexprs and options of each config that comes from a tuned table.
    """
    _Entry(spec, place, mistakes, params, tuned).check()


def check_requires(
    spec: KernelSpec, config: TunedConfig, where: str, mistakes: Mistakes, params: Sequence[Param] | None = None
) -> None:
    """Add a mistake for each type error in the `requires` expression of a tuned table's config; it may be empty.

    Args:
        spec: the entry of the kernel.
        config: the config, with all constexprs and options.
        where: the config's place in the table.
        mistakes: receives the mistakes.
        params: as for `check_rules`.
    """
    if config.requires:
        entry = _Entry(spec, "", mistakes, params, [dict(config.settings)])
        entry.check_requires(config.requires, f"{where}.requires")


class _Entry:
    def __init__(
        self,
        spec: KernelSpec,
        place: str,
        mistakes: Mistakes,
        params: Sequence[Param] | None,
        tuned: Sequence[Mapping[str, Value]],
    ) -> None:
        self.spec = spec
        self.place = place
        self.mistakes = mistakes
        self.defaults: dict[str, Term] | None = None
        if params is not None:
            self.defaults = {
                param.name: ANY if isinstance(param.default, Missing) else term_of(frozenset({kind_of(param.default)}))
                for param in params
                if param.constexpr
            }
        # several spellings if points replace a param's type
        self.params = typed_params(spec)
        self.axes = {name: _readable(values) for name, values in spec.matrix.items()}
        self.configs = [self._settings(config) for config in spec.configs]
        self.spaces = [self._settings(table, several=True) for table in (spec.tuning.space if spec.tuning else ())]
        self.tuned = [{name: (plain_value(value),) for name, value in settings.items()} for settings in tuned]
        self.derived: dict[str, frozenset[Kind]] = {}
        self._told = frozenset(told_options(spec))

    def check(self) -> None:
        """Check the types of every expression of the kernel's manifest entry."""
        every = [*self.configs, *self.spaces, *self.tuned]
        for name, written in self.spec.derived.items():
            key = f"{self.place}.derived.{name}"
            if isinstance(written, str):
                self.derived[name] = self._rule(written, key, BOOL | INT, every, at_call=True)
            else:
                self.derived[name] = self._rule(written.expr, f"{key}.expr", INT, every, at_call=True)
        for number, text in enumerate(self.spec.grid):
            self._rule(text, f"{self.place}.grid[{number}]", INT, every, at_call=True, derived=True)
        self._check_configs(self.spec.configs, self.configs, f"{self.place}.configs")
        if self.spec.tuning is not None:
            self._check_configs(self.spec.tuning.space, self.spaces, f"{self.place}.tuning.space")
            self._rule(
                self.spec.tuning.when, f"{self.place}.tuning.when", BOOL, [*self.configs, *self.spaces], derived=True
            )
            for number, text in enumerate(self.spec.tuning.key):
                # in a tuning key, None counts as 0
                self._rule(text, f"{self.place}.tuning.key[{number}]", INT, [], at_call=True, nullable=True)
        for number, exclude in enumerate(self.spec.exclude):
            self._rule(exclude.when, f"{self.place}.exclude[{number}].when", BOOL, every, derived=True)
        self._rule(self.spec.core, f"{self.place}.core", BOOL, self.configs, derived=True)

    def check_requires(self, text: str, where: str) -> None:
        """Check the types of `text`, the `requires` expression of the tuned table's config at the place `where`."""
        self._rule(text, where, BOOL, self.tuned, at_call=True)

    def _check_configs(self, written: Sequence[Mapping[str, Any]], settings: Sequence[_Settings], place: str) -> None:
        for number, (config, own) in enumerate(zip(written, settings, strict=True)):
            for rule, at_call in (("when", False), ("requires", True)):
                text = config.get(rule)
                if isinstance(text, str) and text:
                    self._rule(text, f"{place}[{number}].{rule}", BOOL, [own], at_call=at_call)

    def _rule(
        self,
        text: str,
        key: str,
        expected: frozenset[Kind],
        settings: Sequence[_Settings],
        *,
        at_call: bool = False,
        derived: bool = False,
        nullable: bool = False,
    ) -> frozenset[Kind]:
        """Return the types that the value of one expression can have, after checking the expression.

        Returns `ANY` if the expression at `key` has a mistake, whether found by this call or by an earlier one.

        `settings`: constexprs and options of each config; `derived`: whether derived constexprs may occur; `nullable`:
        whether the value may be None.
        """
        if key in self.mistakes:
            return ANY
        try:
            expression = expression_tree.parse(text)
            if not at_call:
                _refuse_values(expression.root, text, self.params)
            cases = self._cases(expression.names, settings, at_call=at_call, derived=derived)
            if nullable:
                cases = (
                    case for case in cases if not any(_is_none(case[name]) for name in self.params if name in case)
                )
            return check(expression, expected, cases)
        except expr.ExpressionError as error:
            self.mistakes.add(str(error), at=key)
        except TypeMistake as mistake:
            self.mistakes.add(mistake.what, got=mistake.got, at=key)
        return ANY

    def _cases(
        self, names: frozenset[str], settings: Sequence[_Settings], *, at_call: bool, derived: bool
    ) -> Iterator[Case]:
        """Yield each combination of types or values that the names can have together.

        A name with one type has that type in every case. A name with several types takes its values one after another.

        `settings`: constexprs and options of each config; `at_call`: whether the expression is evaluated at calls,
        rather than by the build; `derived`: whether derived constexprs may occur.
        """
        fixed, splits, params, own = self._sorted_out(names, settings, at_call=at_call, derived=derived)
        groups = self._groups(own, settings, at_call=at_call)
        if prod(len(self.axes[axis]) for axis in splits) > _CASES_MAX:
            fixed |= {axis: _union(self.axes[axis]) for axis in splits if axis in names}
            splits = []
        for point in product(*([(axis, value) for value in self.axes[axis]] for axis in splits)):
            chosen = dict(point)
            known = fixed | {axis: Known(value) for axis, value in chosen.items()}
            kinds = {name: self._param_kinds(name, chosen) for name in params}
            choices = [_separate_terms(kinds[name]) for name in params]
            for terms in product(*choices):
                for group in groups:
                    yield {**known, **dict(zip(params, terms, strict=True)), **group}

    def _sorted_out(
        self, names: frozenset[str], settings: Sequence[_Settings], *, at_call: bool, derived: bool
    ) -> tuple[dict[str, Term], list[str], list[str], list[str]]:
        """Sort the names of an expression into four groups.

        The groups are: names with a fixed type (with their terms), matrix axes that determine the types of other names,
        params, and constexprs or options that configs set.

        `settings`: constexprs and options of each config; `at_call`: whether the expression is evaluated at calls,
        rather than by the build; `derived`: whether derived constexprs may occur.
        """
        fixed: dict[str, Term] = {}
        splits: dict[str, None] = {}
        params, own = [], []
        known = self._known(settings, at_call=at_call, derived=derived)
        for name in sorted(names):
            # without the function's params, an unknown name may be a constexpr with a default
            guessed = at_call and self.defaults is None and name not in self.spec.derived
            if name not in known and not guessed:
                near = did_you_mean(name, tuple(known))
                what = (
                    "expected a param, constexpr or axis" if at_call else "expected an axis, constexpr, option or arch"
                )
                raise TypeMistake(what, f"{name!r}{near}")
            if name == "arch":
                fixed[name] = INT
            elif name in self.params:
                params.append(name)
                if len(self._param_kinds(name, {}) - {Kind.NONE}) > 1:
                    splits |= dict.fromkeys(
                        axis for spelling in self.params[name] for axis in axes_in(spelling) if axis in self.axes
                    )
            elif name in self.axes:
                union = _union(self.axes[name])
                if len(union) > 1 and union != ANY:
                    splits[name] = None
                else:
                    fixed[name] = term_of(union)
            elif derived and name in self.derived:
                fixed[name] = self.derived[name]
            elif any(name in each for each in settings):
                own.append(name)
            else:
                fixed[name] = (self.defaults or {}).get(name, ANY)
        return fixed, [*splits], params, own

    def _known(self, settings: Sequence[_Settings], *, at_call: bool, derived: bool) -> dict[str, None]:
        own = [name for each in settings for name in each if not at_call or name not in OPTIONS or name in self._told]
        known = ["arch", *self.params, *self.axes, *own]
        if derived:
            known += self.derived
        if at_call:
            known += [name for name in self.defaults or () if name not in self.spec.derived]
        return dict.fromkeys(known)

    def _groups(self, own: Sequence[str], settings: Sequence[_Settings], *, at_call: bool) -> list[dict[str, Term]]:
        """Return the distinct combinations of values that the configs give to the constexprs and options in `own`.

        `settings`: constexprs and options of each config; `at_call`: whether the expression is evaluated at calls,
        rather than by the build.
        """
        if not own:
            return [{}]
        mixed = {name for name in own if len(_union([value for each in settings for value in each.get(name, ())])) > 1}
        choices = [
            [self._choices(name, each, at_call=at_call, mixed=name in mixed) for name in own] for each in settings
        ]
        if sum(prod(map(len, each)) for each in choices) > _CASES_MAX:
            return [{name: _union([value for each in settings for value in each.get(name, ())]) for name in own}]
        groups: dict[tuple[object, ...], dict[str, Term]] = {}
        for each in choices:
            for terms in product(*each):
                key = tuple(identity(term.value) if isinstance(term, Known) else term for term in terms)
                groups[key] = dict(zip(own, terms, strict=True))
        return [*groups.values()]

    def _choices(self, name: str, settings: _Settings, *, at_call: bool, mixed: bool) -> list[Term]:
        if name not in settings:
            if not at_call:
                raise TypeMistake(f"expected every config to set {name!r}", "one that does not")
            return [(self.defaults or {}).get(name, ANY)]
        values = settings[name]
        return [Known(value) for value in values] if mixed else [term_of(_union(values))]

    def _param_kinds(self, name: str, chosen: Mapping[str, Operand]) -> frozenset[Kind]:
        """Return the types that a param can have, given the values of some matrix axes.

        Axes in `chosen` have these values; every other axis can have any of its values.
        """
        return frozenset().union(*(self._spelled_kinds(spelling, chosen) for spelling in self.params[name]))

    def _spelled_kinds(self, spelling: str, chosen: Mapping[str, Operand]) -> frozenset[Kind]:
        axes = [axis for axis in axes_in(spelling) if axis in self.axes]
        values = [(chosen[axis],) if axis in chosen else self.axes[axis] for axis in axes]
        found = [
            _kinds_of(fill(spelling, dict(zip(axes, map(str, point), strict=True))).strip())
            for point in product(*values)
        ]
        return frozenset().union(*found) if found else ANY

    def _settings(self, written: Mapping[str, Any], *, several: bool = False) -> _Settings:
        """Return the possible values of each constexpr and compiler option of a config, defaults included.

        With `several`, `written` is a table of a tuning space: a list holds the values to try.
        """
        options = {name: option.default for name, option in OPTIONS.items()} | self.spec.options
        # chosen for a config after its rules: they do not see it
        del options[TOOLCHAIN]
        found: dict[str, tuple[Operand, ...]] = {name: (option_value(value),) for name, value in options.items()}
        for name, raw in written.items():
            if name in CONFIG_RULES or name == TOOLCHAIN:
                continue
            values = raw if several and isinstance(raw, list) else [raw]
            found[name] = tuple(map(option_value, values)) if name in OPTIONS else _readable(values)
        return found


def _readable(raw: Sequence[Any]) -> tuple[Operand, ...]:
    """Return constexprs as expressions see them; an empty tuple if one is invalid (another check reports it).

    `raw`: the value as TOML gives it.
    """
    try:
        return tuple(plain_value(read_value(value, "")) for value in raw)
    except ManifestError:
        return ()


def _union(values: Sequence[Operand]) -> frozenset[Kind]:
    """Return the set of types that occur among `values`; every type if there are no values."""
    return frozenset(map(kind_of, values)) or ANY


def _separate_terms(kinds: frozenset[Kind]) -> list[Term]:
    """Split the kinds that a param may have into terms: groups of kinds that expressions are checked with, one by one.

    Each kind is a term of its own, except that pointer, hidden (a tuple or descriptor, which has no value in expressions)
    and None together are one.
    """
    if kinds == ANY:
        return [ANY]
    together = kinds & _NULLABLE if kinds & {Kind.POINTER, Kind.HIDDEN} else frozenset()
    return [
        *([together] if together else []),
        *(term_of(frozenset({kind})) for kind in Kind if kind in kinds - together),
    ]


_NULLABLE: Final = frozenset({Kind.POINTER, Kind.HIDDEN, Kind.NONE})


def _is_none(term: Term) -> bool:
    return isinstance(term, Known) and term.value is None


def _kinds_of(spelling: str) -> frozenset[Kind]:
    """Return the types that a type in a manifest stands for; every type if it is invalid (another check reports it)."""
    if spelling.endswith("?"):
        return _kinds_of(spelling[:-1]) | {Kind.NONE}
    for kind, spelled in _SPELLED.items():
        if spelling in spelled:
            return frozenset({kind})
    for kind, start in _STARTS.items():
        if spelling.startswith(start):
            return frozenset({kind})
    return ANY


_SPELLED: Final = {Kind.INT: INTS, Kind.BOOL: BOOLS, Kind.FLOAT: FLOATS, Kind.NONE: (NONE,)}
_STARTS: Final[dict[Kind, str | tuple[str, ...]]] = {Kind.POINTER: "*", Kind.HIDDEN: ("(", "tensordesc")}


def _refuse_values(node: Node, text: str, params: Collection[str]) -> None:
    """Raise if a rule that the build evaluates reads the value of a param, which is known only at a call."""
    name = next(_values_asked(node, params), None)
    if name is not None:
        what = "expected a rule over axes, constexprs, options, arch and has(...), whose values the build knows"
        raise TypeMistake(what, f"{text!r}, with {name!r}, whose value only a call has")


def asks_values(node: Node, params: Collection[str]) -> bool:
    """Return whether an expression reads the value of a param; ``has(param)`` does not read the value."""
    return any(True for _ in _values_asked(node, params))


def _values_asked(node: Node, params: Collection[str]) -> Iterator[str]:
    if isinstance(node, Name):
        if node.name in params:
            yield node.name
        return
    asks = isinstance(node, Operation) and node.op is Op.HAS and isinstance(node.operands[0], Name)
    for operand in () if asks else getattr(node, "operands", ()):
        yield from _values_asked(operand, params)
