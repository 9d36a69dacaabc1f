"""The *points* of a kernel's manifest entry: the cases to build. Pure.

A case is one combination of types and matrix constexprs. The entry lists its cases, or they are the product of its
matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

from nojit.aot.manifest.archs import check_target, chips_of
from nojit.aot.manifest.config_rules import constexprs_in
from nojit.aot.manifest.matrix import read_value
from nojit.aot.manifest.mistakes import Mistakes
from nojit.aot.manifest.options import OPTIONS, option_value
from nojit.aot.manifest.spec import HINT_SETS_MAX, KernelSpec, PointSpec
from nojit.aot.manifest.text import spell_key
from nojit.aot.manifest.types import fill, types_of
from nojit.aot.variants.hints import WrittenHints, subsets
from nojit.runtime.base.suggestions import did_you_mean
from nojit.runtime.errors import ManifestError
from nojit.runtime.table.parts import Axis
from nojit.runtime.values import Value, identity

__all__ = ["Axes", "Point", "Settings", "Signature", "hint_places", "points_of"]

Axes: TypeAlias = tuple[tuple[str, Value], ...]
Settings: TypeAlias = tuple[tuple[str, Value], ...]
Signature: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One case (types and matrix constexprs) to build, with the hint sets and settings to build it for."""

    axes: Axes
    signature: Signature
    hints: tuple[WrittenHints, ...]
    """Hint sets to build. The empty set stands for variants without hints."""
    reason: str
    """Reason why some calls of the case need no variant; empty if the build must serve every call."""
    where: str
    """Place of the case in the manifest, for messages."""
    settings: Settings = ()
    """Constexprs and options that a config must have; configs with other values are not built for the case."""
    derived: Settings = ()
    """Derived constexprs that are built for only one value, as (name, value)."""


def points_of(spec: KernelSpec, axes: Sequence[Axis], arch: str, where: str) -> Iterator[Point]:
    """Yield the cases of an entry to build for an arch: those that it lists, or else all of its matrix.

    `spec`: the kernel's manifest entry.

    Raises:
        ManifestError: a type, a value or a hint set is invalid.
    """
    if spec.point:
        return _listed(spec, axes, arch, where)
    return _of_matrix(spec, axes, where)


def _of_matrix(spec: KernelSpec, axes: Sequence[Axis], where: str) -> Iterator[Point]:
    """Yield all combinations of the matrix's values and of the types of optional params.

    `spec`: the kernel's manifest entry.
    """
    hints = _hints_of(spec, where)
    known: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for values in product(*(axis.values for axis in axes)):
        chosen = tuple(zip((axis.name for axis in axes), values, strict=True))
        spelled = {name: str(value) for name, value in chosen}
        filled = tuple(fill(spelling, spelled) for spelling in spec.params.values())
        if filled not in known:
            known[filled] = _choices(spec.params, filled, where)
        for types in product(*known[filled]):
            signature = tuple(zip(spec.params, types, strict=True))
            yield Point(chosen, signature, hints, spec.aligned_only, where)


def _choices(params: Iterable[str], spellings: Iterable[str], where: str) -> list[tuple[str, ...]]:
    """Return the possible types of each param, in the order of `params`."""
    choices = []
    mistakes = Mistakes()
    for name, spelling in zip(params, spellings, strict=True):
        with mistakes.caught():
            choices.append(types_of(spelling, f"{where}.params.{name}"))
    mistakes.raise_found()
    return choices


def _hints_of(spec: KernelSpec, where: str) -> tuple[WrittenHints, ...]:
    written = [WrittenHints(f"{where}.hints[{i}]", tuple(hints.items())) for i, hints in enumerate(spec.hints)]
    for i, partial in enumerate(spec.partial_hints):
        place = f"{where}.partial_hints[{i}]"
        most = len(partial.hints) if partial.missing is None else partial.missing
        written += subsets(partial.hints, most, partial.at_most, place)
    general = [] if written and spec.aligned_only else [WrittenHints(f"{where}.hints", ())]
    return (*written, *general)


def hint_places(spec: KernelSpec, where: str) -> dict[tuple[str, int], str]:
    """Return the key path at which a manifest entry first lists each hint, by (param, hint).

    `spec`: the kernel's manifest entry.
    """
    tables = [(f"{where}.hints[{number}]", hints) for number, hints in enumerate(spec.hints)]
    tables += [(f"{where}.partial_hints[{number}].hints", each.hints) for number, each in enumerate(spec.partial_hints)]
    tables += [(f"{where}.point[{number}].hints", point.hints) for number, point in enumerate(spec.point)]
    places: dict[tuple[str, int], str] = {}
    for place, hints in tables:
        for path, hint in hints.items():
            places.setdefault((path, hint), place + spell_key(path))
    return places


def _listed(spec: KernelSpec, axes: Sequence[Axis], arch: str, where: str) -> Iterator[Point]:
    for number, raw in enumerate(spec.point):
        place = f"{where}.point[{number}]"
        for named in raw.archs:
            check_target(named, f"{place}.archs")
        if raw in spec.point[:number]:
            what = "expected each point once: remove this one"
            raise ManifestError(what, got=f"point[{spec.point.index(raw)}] again", where=place)
        point = _point(spec, raw, axes, place)
        if not raw.archs or any(arch in chips_of(named) for named in raw.archs):
            yield point


def _point(spec: KernelSpec, raw: PointSpec, axes: Sequence[Axis], where: str) -> Point:
    values = {name: read_value(value, f"{where}.values.{name}") for name, value in raw.values.items()}
    for name in values:
        known = (*(axis.name for axis in axes), *spec.derived)
        if name not in known:
            got = f"{name!r}{did_you_mean(name, known)}"
            raise ManifestError("expected an axis or a derived constexpr", got=got, where=f"{where}.values.{name}")
    chosen = tuple((axis.name, _value_of(axis, values, where)) for axis in axes)
    spelled = {name: str(value) for name, value in chosen}
    hints = subsets(raw.hints, raw.missing, HINT_SETS_MAX, where) if raw.hints else []
    general = [] if raw.hints and raw.aligned_only else [WrittenHints(f"{where}.hints", ())]
    return Point(
        axes=chosen,
        signature=_signature(spec, raw, spelled, where),
        hints=(*hints, *general),
        reason=raw.aligned_only,
        where=where,
        settings=_settings(spec, raw.config, f"{where}.config"),
        derived=tuple((name, value) for name, value in values.items() if name in spec.derived),
    )


def _value_of(axis: Axis, values: Mapping[str, Value], where: str) -> Value:
    if axis.name not in values:
        if len(axis.values) == 1:
            return axis.values[0]
        raise ManifestError(f"expected a value for axis {axis.name!r}", got="none", where=f"{where}.values")
    value = values[axis.name]
    if identity(value) not in map(identity, axis.values):
        what = f"expected a value of axis {axis.name!r}, {' or '.join(map(repr, axis.values))}"
        raise ManifestError(what, got=repr(value), where=f"{where}.values.{axis.name}")
    return value


def _signature(spec: KernelSpec, raw: PointSpec, spelled: Mapping[str, str], where: str) -> Signature:
    """Return the type of each param in a listed case; an optional param is present unless the case gives it `none`.

    `spec`: the kernel's manifest entry.
    """
    types: dict[str, str] = {}
    for name, spelling in {**spec.params, **raw.types}.items():
        place = f"{where}.types.{name}"
        first, *others = types_of(fill(spelling, spelled), place)
        if others and name in raw.types:
            what = "expected one type, since a point is one case"
            raise ManifestError(what, got=repr(spelling), where=place)
        types[name] = first
    return tuple(types.items())


def _settings(spec: KernelSpec, raw: Mapping[str, Any], where: str) -> Settings:
    constexprs = dict.fromkeys(name for config in spec.configs for name in constexprs_in(config))
    for name, value in raw.items():
        if name in OPTIONS:
            OPTIONS[name].check(value, f"{where}.{name}")
        elif name not in constexprs:
            got = f"{name!r}{did_you_mean(name, (*constexprs, *OPTIONS))}"
            raise ManifestError("expected a constexpr or option that configs set", got=got, where=f"{where}.{name}")
    return tuple(
        (name, option_value(value) if name in OPTIONS else read_value(value, f"{where}.{name}"))
        for name, value in raw.items()
    )
