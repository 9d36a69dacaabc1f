"""Limits on the number of variants of an entry, counted without listing them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb, prod
from typing import NamedTuple

from nojit.aot.defaults import MAX_VARIANTS
from nojit.aot.manifest.config_rules import CONFIG_RULES
from nojit.aot.manifest.expressions import asks_values
from nojit.aot.manifest.matrix import typed_params
from nojit.aot.manifest.spec import DerivedSpec, KernelSpec
from nojit.aot.manifest.tuning_rules import choices
from nojit.aot.manifest.types import count_types
from nojit.runtime import expr
from nojit.runtime._core import VARIANTS_MAX
from nojit.runtime.errors import ManifestError

__all__ = ["MAX_VARIANTS", "check_count", "check_size"]


class _Factor(NamedTuple):
    """One factor of the number of variants."""

    words: str
    key: str
    """Path of the key in the manifest."""
    size: int


def check_count(
    spec: KernelSpec, arch: str, where: str, most: int | None, configs: int, *, tuning: bool = False
) -> None:
    """Refuse an entry whose upper bound of variants exceeds the limit, before any variant is listed.

    Args:
        spec: the entry.
        arch: the arch to build.
        where: the entry, for messages.
        most: maximum number of variants before `exclude`; None for no limit.
        configs: number of its configs for the arch.
        tuning: whether its spaces are built, each case with its fullest hint set only.

    Raises:
        ManifestError: there may be more variants; the message names the largest factor.
    """
    if most is None:
        return
    total, words, largest = _product(spec, where, configs, tuning=tuning)
    if total > most:
        advice = f"cut the {largest.words}, list [[kernel.point]]s instead, or allow more with --max-variants"
        what = f"expected at most {most:,} variants of {spec.name} for {arch}, before `exclude`"
        raise ManifestError(what, got=f"{total:,}, from {words}; {advice}", where=largest.key)


def check_size(listed: int, spec: KernelSpec, where: str, configs: int, *, tuning: bool = False) -> None:
    """Refuse an entry that has more variants than a bundle can hold of one kernel.

    Args:
        listed: number of variants listed so far, after `exclude`.
        spec: the entry.
        where: the entry, for messages.
        configs: number of its configs for the arch.
        tuning: as for `check_count`.

    Raises:
        ManifestError: there are more variants; the message names the largest factor.
    """
    if listed > VARIANTS_MAX:
        _, words, largest = _product(spec, where, configs, tuning=tuning)
        advice = (
            f"cut the {largest.words}, leave some out with `exclude`, or split the entry into kernels of other names"
        )
        what = f"expected at most {VARIANTS_MAX:,} variants of a kernel in a bundle"
        raise ManifestError(what, got=f"more, from {words}; {advice}", where=largest.key)


def _product(spec: KernelSpec, where: str, configs: int, *, tuning: bool) -> tuple[int, str, _Factor]:
    """Return an entry's maximum number of variants, the factors in words, and the largest factor."""
    shared = [*_points(spec, where), *_derived(spec, where), *([] if tuning else _hints(spec, where))]
    spaces = _spaces(spec, where) if tuning else []
    sizes = [prod(factor.size for factor in space) for space in spaces]
    total = prod(factor.size for factor in shared) * (configs + sum(sizes))
    own = spaces[sizes.index(max(sizes))] if sizes else []
    factors = [*shared, *own, _Factor("configs", f"{where}.configs", configs)]
    factors.sort(key=lambda factor: -factor.size)
    words = ", ".join(f"{factor.size:,} {factor.words}" for factor in factors if factor.size > 1) or "1 config"
    return total, words, factors[0]


def _points(spec: KernelSpec, where: str) -> Iterator[_Factor]:
    if spec.point:
        yield _Factor("points", f"{where}.point", len(spec.point))
        return
    for name, values in spec.matrix.items():
        yield _Factor(f"values of axis {name!r}", f"{where}.matrix.{name}", len(values))
    for name, spelling in spec.params.items():
        yield _Factor(f"types of {name!r}", f"{where}.params.{name}", count_types(spelling))


def _derived(spec: KernelSpec, where: str) -> Iterator[_Factor]:
    params = typed_params(spec)
    for name, derived in spec.derived.items():
        key = f"{where}.derived.{name}"
        if isinstance(derived, DerivedSpec):
            yield _Factor(f"values of {name!r}", key, len(derived.values))
        elif asks_values(expr.parse(derived).root, params):
            yield _Factor(f"values of {name!r}", key, 2)


def _hints(spec: KernelSpec, where: str) -> Iterator[_Factor]:
    if spec.point:
        sets = max(_subsets(len(point.hints), point.missing) for point in spec.point)
        yield _Factor("sets of hints", f"{where}.point", 1 + sets)
        return
    partial = sum(
        _subsets(len(each.hints), len(each.hints) if each.missing is None else each.missing)
        for each in spec.partial_hints
    )
    yield _Factor("sets of hints", f"{where}.hints", 1 + len(spec.hints) + partial)


def _subsets(hints: int, missing: int) -> int:
    return sum(comb(hints, left_out) for left_out in range(min(missing + 1, hints)))


def _spaces(spec: KernelSpec, where: str) -> list[list[_Factor]]:
    """Return the factors of each space's configs."""
    return [
        [
            _Factor(f"values of {name!r}", f"{where}.tuning.space[{number}].{name}", len(choices(value)))
            for name, value in table.items()
            if name not in CONFIG_RULES
        ]
        for number, table in enumerate(spec.tuning.space if spec.tuning else ())
    ]
