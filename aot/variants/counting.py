"""Limits on the number of variants of a kernel's manifest entry, computed without listing them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb, prod
from typing import NamedTuple

from nojit.aot.base.defaults import MAX_VARIANTS
from nojit.aot.manifest import expression_tree
from nojit.aot.manifest.config_rules import CONFIG_RULES
from nojit.aot.manifest.expression_checks import asks_values
from nojit.aot.manifest.matrix import typed_params
from nojit.aot.manifest.spec import DerivedSpec, KernelSpec
from nojit.aot.manifest.tuning_rules import choices
from nojit.aot.manifest.types import count_types
from nojit.runtime._core import VARIANTS_MAX
from nojit.runtime.errors import ManifestError

__all__ = ["MAX_VARIANTS", "check_count", "check_size"]


class _Factor(NamedTuple):
    """One factor of a kernel's number of variants, such as the number of values of an axis."""

    words: str
    key: str
    """Key path in the manifest of the key that the factor comes from."""
    size: int


def check_count(
    spec: KernelSpec, arch: str, where: str, most: int | None, configs: int, *, tuning: bool = False
) -> None:
    """Raise if a kernel may have more variants than the limit. It uses an upper bound and lists no variant.

    Args:
        spec: the manifest entry of the kernel.
        arch: the arch to build for.
        where: key path of the entry, for messages.
        most: maximum number of variants before `exclude`; None for no limit.
        configs: number of configs in the entry that are for the arch.
        tuning: whether the build is for tuning: it includes the tuning spaces, and only the largest hint set of each
            case.

    Raises:
        ManifestError: there may be more than `most` variants; the message names the largest factor.
    """
    if most is None:
        return
    total, words, largest = _product(spec, where, configs, tuning=tuning)
    if total > most:
        advice = f"cut the {largest.words}, list [[kernel.point]]s instead, or allow more with --max-variants"
        what = f"expected at most {most:,} variants of {spec.name} for {arch}, before `exclude`"
        raise ManifestError(what, got=f"{total:,}, from {words}; {advice}", where=largest.key)


def check_size(listed: int, spec: KernelSpec, where: str, configs: int, *, tuning: bool = False) -> None:
    """Raise if a kernel already has more variants than a bundle can hold of one kernel.

    Args:
        listed: number of variants listed so far, after `exclude`.
        spec: the manifest entry of the kernel.
        where: key path of the entry, for messages.
        configs: number of configs in the entry that are for the arch.
        tuning: as for `check_count`.

    Raises:
        ManifestError: there are too many variants; the message names the largest factor.
    """
    if listed > VARIANTS_MAX:
        _, words, largest = _product(spec, where, configs, tuning=tuning)
        advice = (
            f"cut the {largest.words}, leave some out with `exclude`, or split the entry into kernels of other names"
        )
        what = f"expected at most {VARIANTS_MAX:,} variants of a kernel in a bundle"
        raise ManifestError(what, got=f"more, from {words}; {advice}", where=largest.key)


def _product(spec: KernelSpec, where: str, configs: int, *, tuning: bool) -> tuple[int, str, _Factor]:
    """Return the maximum number of variants of an entry, the factors as text for messages, and the largest factor.

    `spec`: the kernel's manifest entry; `tuning`: whether the build is for tuning, with the configs of the spaces.
    """
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
        elif asks_values(expression_tree.parse(derived).root, params):
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
    """Return, for each tuning space of an entry, the factors of its number of configs.

    `spec`: the kernel's manifest entry.
    """
    return [
        [
            _Factor(f"values of {name!r}", f"{where}.tuning.space[{number}].{name}", len(choices(value)))
            for name, value in table.items()
            if name not in CONFIG_RULES
        ]
        for number, table in enumerate(spec.tuning.space if spec.tuning else ())
    ]
