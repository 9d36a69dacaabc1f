"""Checks of the table ``[kernel.tuning]`` of a manifest that do not need the kernel's source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nojit.aot.manifest.config_rules import CONFIG_RULES, check_rules, constexprs_in
from nojit.aot.manifest.matrix import typed_params
from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.manifest.options import OPTIONS, TOOLCHAIN
from nojit.aot.manifest.text import spell_key
from nojit.aot.manifest.types import BOOLS, FLOATS, NONE
from nojit.runtime.base.launch_options import TUNABLE
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.expr import expression as expr
from nojit.runtime.tuning.costs import cost_words, is_cost
from nojit.runtime.tuning.tuned_tables import MULTIPROCESSORS, is_name

if TYPE_CHECKING:
    from nojit.aot.manifest.spec import KernelSpec, TuningSpec

__all__ = ["check_batch", "check_tuning", "choices"]


def check_tuning(kernel: KernelSpec, tuning: TuningSpec, place: str, mistakes: Mistakes) -> None:
    """Add a mistake for each tuning key, axis, group of alike values and tuning space that does not match the kernel.

    Args:
        kernel: the manifest entry of the kernel.
        tuning: the table ``[kernel.tuning]`` of this entry.
        place: key path of this entry in the manifest.
        mistakes: receives the mistakes, with suggestions.
    """
    where = f"{place}.tuning"
    _check_key(kernel, tuning, f"{where}.key", mistakes)
    _check_terms(kernel, tuning, where, mistakes)
    for axis, groups in tuning.alike.items():
        _check_alike(kernel.matrix, axis, groups, f"{where}.alike.{axis}", mistakes)
    for number, axis in enumerate(tuning.apart):
        _check_axis(kernel.matrix, axis, f"{where}.apart[{number}]", mistakes)
    known = dict.fromkeys(name for config in kernel.configs for name in constexprs_in(config))
    for number, table in enumerate(tuning.space):
        _check_space(table, tuple(known), f"{where}.space[{number}]", mistakes)


def choices(value: Any) -> Sequence[Any]:
    """Return the values that a tuning space tries for one key; a scalar counts as a list of one value."""
    return value if isinstance(value, list) else (value,)


def check_batch(kernel: KernelSpec, place: str, mistakes: Mistakes) -> None:
    """Check that the entry's key `batch` lists only integer params, and none of them twice.

    `place`: key path in the manifest, for messages.
    """
    ints = _ints(kernel)
    for number, name in enumerate(kernel.batch):
        where = f"{place}[{number}]"
        _check_int(name, ints, where, mistakes)
        if name in kernel.batch[:number]:
            mistakes.add("expected each param once", got=repr(name), at=where)


def _ints(kernel: KernelSpec) -> tuple[str, ...]:
    return tuple(name for name, spellings in typed_params(kernel).items() if all(map(_is_int, spellings)))


def _check_int(name: str, ints: tuple[str, ...], where: str, mistakes: Mistakes) -> None:
    if name not in ints:
        near = did_you_mean(name, ints)
        mistakes.add(
            f"expected an int param ({', '.join(ints) or 'the kernel has none'})", got=f"{name!r}{near}", at=where
        )


def _check_key(kernel: KernelSpec, tuning: TuningSpec, where: str, mistakes: Mistakes) -> None:
    ints = _ints(kernel)
    for number, text in enumerate(tuning.key):
        place = f"{where}[{number}]"
        try:
            names = sorted(expr.parse(text).names)
        except expr.ExpressionError as error:
            mistakes.add(str(error), at=place)
            continue
        if not names:
            mistakes.add("expected an expression over int params", got=repr(text), at=place)
        for name in names:
            _check_int(name, ints, place, mistakes)
        if text in tuning.key[:number]:
            mistakes.add("expected each expression once", got=repr(text), at=place)


def _check_terms(kernel: KernelSpec, tuning: TuningSpec, place: str, mistakes: Mistakes) -> None:
    names = tuning.names
    if (tuning.terms or names) and len(names) != len(tuning.key):
        what = f"expected {len(tuning.key)} names, one for each number of the key"
        mistakes.add(what, got=str(len(names)), at=f"{place}.names")
    constexprs = list(_int_constexprs(kernel.configs))
    taken = {MULTIPROCESSORS, *kernel.matrix, *(name for config in kernel.configs for name in constexprs_in(config))}
    for number, name in enumerate(names):
        if name in (*names[:number], *taken) or not is_name(name):
            mistakes.add("expected a name of its own", got=repr(name), at=f"{place}.names[{number}]")
    axes = [axis for axis, values in kernel.matrix.items() if all(type(value) is int for value in values)]
    known = tuple(dict.fromkeys((*names, MULTIPROCESSORS, *constexprs, *axes)))
    for number, text in enumerate(tuning.terms):
        _check_term(text, known, f"{place}.terms[{number}]", mistakes)


def _int_constexprs(configs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the names of the constexprs that are ints in each config that sets them."""
    every = dict.fromkeys(name for config in configs for name in constexprs_in(config))
    return (name for name in every if all(type(config.get(name, 0)) is int for config in configs))


def _check_term(text: str, known: tuple[str, ...], where: str, mistakes: Mistakes) -> None:
    try:
        term = expr.parse(text)
    except expr.ExpressionError as error:
        mistakes.add(str(error), at=where)
        return
    strangers = [name for name in sorted(term.names) if name not in known]
    for name in strangers:
        near = did_you_mean(name, known)
        mistakes.add(f"expected one of {', '.join(known)}", got=f"{name!r}{near}", at=where)
    if not strangers and not is_cost(cost_words(text, known), len(known)):
        mistakes.add("expected a number", got=repr(text), at=where)


def _is_int(spelling: str) -> bool:
    return not (spelling[:1] in "*(" or spelling.startswith("tensordesc") or spelling in (*BOOLS, *FLOATS, NONE, ""))


def _check_axis(matrix: Mapping[str, list[Any]], axis: str, where: str, mistakes: Mistakes) -> bool:
    if axis in matrix:
        return True
    near = did_you_mean(axis, tuple(matrix))
    mistakes.add("expected an axis of the matrix", got=f"{axis!r}{near}", at=where)
    return False


def _check_alike(
    matrix: Mapping[str, list[Any]], axis: str, groups: list[list[Any]], where: str, mistakes: Mistakes
) -> None:
    if not _check_axis(matrix, axis, where, mistakes):
        return
    known = [(type(value), value) for value in matrix[axis]]
    seen: list[Any] = []
    for number, group in enumerate(groups):
        for index, value in enumerate(group):
            place = f"{where}[{number}][{index}]"
            if (type(value), value) not in known:
                mistakes.add(f"expected a value of axis {axis!r}, {matrix[axis]}", got=repr(value), at=place)
            elif (type(value), value) in seen:
                mistakes.add("expected each value in one group", got=repr(value), at=place)
            seen.append((type(value), value))


def _check_space(table: Mapping[str, Any], known: tuple[str, ...], place: str, mistakes: Mistakes) -> None:
    check_rules(table, place, mistakes)
    for key, raw in table.items():
        if key in CONFIG_RULES:
            continue
        where = place + spell_key(key)
        values = choices(raw)
        if key not in known and key not in (*TUNABLE, TOOLCHAIN):
            what = f"expected a constexpr of the configs or one of {', '.join((*TUNABLE, TOOLCHAIN))}"
            mistakes.add(what, got=f"{key!r}{_near(key, known)}", at=where)
        elif not values:
            mistakes.add("expected a value, or a list of them", got="[]", at=where)
        elif repeated := next(_repeated(values), None):
            mistakes.add("expected each value once", got=repeated, at=where)
        else:
            for number, value in enumerate(values if key in OPTIONS else ()):
                with mistakes.caught():
                    OPTIONS[key].check(value, f"{where}[{number}]" if isinstance(raw, list) else where)
    for name in known:
        if name not in table:
            mistakes.add(f"expected a value for {name!r}, as the configs have", got="none", at=place)


def _near(key: str, known: tuple[str, ...]) -> str:
    if key in OPTIONS:
        return ", which a call cannot pass to select a config: set it in [kernel.options]"
    return did_you_mean(key, (*known, *TUNABLE, TOOLCHAIN, *CONFIG_RULES))


def _repeated(values: Sequence[Any]) -> Iterator[str]:
    seen = []
    for value in values:
        if (type(value), value) in seen:
            yield repr(value)
        seen.append((type(value), value))
