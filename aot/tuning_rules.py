"""The rules of ``[kernel.tuning]`` that a manifest can be held to without its kernel's source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nojit.aot.config_rules import CONFIG_RULES, check_rules, constexprs_in
from nojit.aot.manifest_text import ManifestText
from nojit.aot.options import OPTIONS, TUNABLE
from nojit.aot.types import FLOATS, NONE
from nojit.runtime import expr
from nojit.runtime.errors import ManifestError, did_you_mean
from nojit.runtime.neighbours import cost_words, is_cost
from nojit.runtime.tuned import MULTIPROCESSORS, is_name

if TYPE_CHECKING:
    from nojit.aot.manifest import KernelSpec, TuningSpec

__all__ = ["check_batch", "check_tuning", "choices"]


def check_tuning(kernel: KernelSpec, tuning: TuningSpec, place: str, source: ManifestText) -> None:
    """Refuse a key, an axis, a group of alike values or a space that fits no call of the kernel.

    Args:
        kernel: the entry.
        tuning: its tuning.
        place: key path of the entry.
        source: turns key paths into lines.

    Raises:
        ManifestError: it does not fit; with the nearest right spelling.
    """
    where = f"{place}.tuning"
    _check_key(kernel, tuning, source.where(f"{where}.key"))
    _check_terms(kernel, tuning, where, source)
    for axis, groups in tuning.alike.items():
        _check_alike(kernel.matrix, axis, groups, source.where(f"{where}.alike.{axis}"))
    for number, axis in enumerate(tuning.apart):
        _check_axis(kernel.matrix, axis, source.where(f"{where}.apart[{number}]"))
    known = dict.fromkeys(name for config in kernel.configs for name in constexprs_in(config))
    for number, table in enumerate(tuning.space):
        _check_space(table, tuple(known), f"{where}.space[{number}]", source)


def choices(value: Any) -> Sequence[Any]:
    """List the values that a space tries for one key; a scalar is fixed."""
    return value if isinstance(value, list) else (value,)


def check_batch(kernel: KernelSpec, place: str, source: ManifestText) -> None:
    """Check that what a manifest says to grow with the batch are int params, each named once.

    Raises:
        ManifestError: they are not; with the nearest right spelling.
    """
    ints = _ints(kernel)
    for number, name in enumerate(kernel.batch):
        where = source.where(f"{place}[{number}]")
        _check_int(name, ints, where)
        if name in kernel.batch[:number]:
            raise ManifestError("expected each param once", got=repr(name), where=where)


def _ints(kernel: KernelSpec) -> tuple[str, ...]:
    return tuple(name for name, spelling in kernel.params.items() if _is_int(spelling))


def _check_int(name: str, ints: tuple[str, ...], where: str) -> None:
    if name not in ints:
        near = did_you_mean(name, ints)
        raise ManifestError(f"expected an int param ({', '.join(ints)})", got=f"{name!r}{near}", where=where)


def _check_key(kernel: KernelSpec, tuning: TuningSpec, where: str) -> None:
    ints = _ints(kernel)
    for text in tuning.key:
        try:
            names = sorted(expr.parse(text).names)
        except expr.ExpressionError as error:
            raise ManifestError(str(error), where=where) from None
        if not names:
            raise ManifestError("expected an expression over int params", got=repr(text), where=where)
        for name in names:
            _check_int(name, ints, where)
    if len(set(tuning.key)) != len(tuning.key):
        raise ManifestError("expected each expression once", got=repr(tuning.key), where=where)


def _check_terms(kernel: KernelSpec, tuning: TuningSpec, place: str, source: ManifestText) -> None:
    names = tuning.names
    if (tuning.terms or names) and len(names) != len(tuning.key):
        what = f"expected {len(tuning.key)} names, one for each number of the key"
        raise ManifestError(what, got=str(len(names)), where=source.where(f"{place}.names"))
    constexprs = [name for config in kernel.configs for name in constexprs_in(config)]
    for number, name in enumerate(names):
        if name in (*names[:number], MULTIPROCESSORS, *constexprs, *kernel.matrix) or not is_name(name):
            where = source.where(f"{place}.names[{number}]")
            raise ManifestError("expected a name of its own", got=repr(name), where=where)
    axes = [axis for axis, values in kernel.matrix.items() if all(type(value) is int for value in values)]
    known = tuple(dict.fromkeys((*names, MULTIPROCESSORS, *constexprs, *axes)))
    for number, text in enumerate(tuning.terms):
        _check_term(text, known, source.where(f"{place}.terms[{number}]"))


def _check_term(text: str, known: tuple[str, ...], where: str) -> None:
    try:
        term = expr.parse(text)
    except expr.ExpressionError as error:
        raise ManifestError(str(error), where=where) from None
    for name in sorted(term.names):
        if name not in known:
            near = did_you_mean(name, known)
            raise ManifestError(f"expected one of {', '.join(known)}", got=f"{name!r}{near}", where=where)
    if not is_cost(cost_words(text, known), len(known)):
        raise ManifestError("expected a number", got=repr(text), where=where)


def _is_int(spelling: str) -> bool:
    return not (spelling[:1] in "*(" or spelling.startswith("tensordesc") or spelling in (*FLOATS, NONE, ""))


def _check_axis(matrix: Mapping[str, list[Any]], axis: str, where: str) -> None:
    if axis not in matrix:
        near = did_you_mean(axis, tuple(matrix))
        raise ManifestError("expected an axis of the matrix", got=f"{axis!r}{near}", where=where)


def _check_alike(matrix: Mapping[str, list[Any]], axis: str, groups: list[list[Any]], where: str) -> None:
    _check_axis(matrix, axis, where)
    known = [(type(value), value) for value in matrix[axis]]
    seen: list[Any] = []
    for value in (value for group in groups for value in group):
        if (type(value), value) not in known:
            raise ManifestError(f"expected a value of axis {axis!r}, {matrix[axis]}", got=repr(value), where=where)
        if (type(value), value) in seen:
            raise ManifestError("expected each value in one group", got=repr(value), where=where)
        seen.append((type(value), value))


def _check_space(table: Mapping[str, Any], known: tuple[str, ...], place: str, source: ManifestText) -> None:
    check_rules(table, place, source)
    for key, raw in table.items():
        if key in CONFIG_RULES:
            continue
        where = source.where(f"{place}.{key}")
        if key not in known and key not in TUNABLE:
            raise ManifestError(
                f"expected a constexpr of the configs or one of {', '.join(TUNABLE)}",
                got=f"{key!r}{_near(key, known)}",
                where=where,
            )
        values = choices(raw)
        if not values:
            raise ManifestError("expected a value, or a list of them", got="[]", where=where)
        if repeated := next(_repeated(values), None):
            raise ManifestError("expected each value once", got=repeated, where=where)
        for value in values if key in OPTIONS else ():
            OPTIONS[key].check(value, where)
    for name in known:
        if name not in table:
            raise ManifestError(
                f"expected a value for {name!r}, as the configs have", got="none", where=source.where(place)
            )


def _near(key: str, known: tuple[str, ...]) -> str:
    if key in OPTIONS:
        return ", which tells no configs apart at a call: it belongs in [kernel.options]"
    return did_you_mean(key, (*known, *TUNABLE, *CONFIG_RULES))


def _repeated(values: Sequence[Any]) -> Iterator[str]:
    seen = []
    for value in values:
        if (type(value), value) in seen:
            yield repr(value)
        seen.append((type(value), value))
