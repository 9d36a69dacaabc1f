"""Expressions for recorded grids: products of ``cdiv(param, CONSTEXPR)``, params and constants that give every recorded grid. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

__all__ = ["Sample", "grid_of"]

# factors of a product, and products that are tried
_FACTORS_MAX = 3
_TRIED_MAX = 200_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One recorded launch."""

    grid: tuple[int, ...]
    params: Mapping[str, int]
    """Int arguments by param."""
    constexprs: Mapping[str, int]
    """Int constexprs by name."""


def grid_of(samples: Sequence[Sample]) -> tuple[str | None, ...]:
    """Return an expression for each dimension of a kernel's grid; None for a dimension for which none was found.

    Args:
        samples: recorded launches; without any, the result is empty.
    """
    if not samples:
        return ()
    dimensions = max(len(sample.grid) for sample in samples)
    columns = [[(*sample.grid, 1, 1)[place] for sample in samples] for place in range(dimensions)]
    while len(columns) > 1 and set(columns[-1]) == {1}:
        columns.pop()
    factors = dict(_factors(samples))
    return tuple(_expression(column, factors) for column in columns)


def _factors(samples: Sequence[Sample]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the factors that have a value in every sample, those of tiles first."""
    params = _common([sample.params for sample in samples])
    constexprs = _common([sample.constexprs for sample in samples])
    # tiles of one size cannot be told apart by values: cdiv(n, BLOCK_N) is likelier than cdiv(n, BLOCK_M)
    pairs = [(name, tile) for name in params for tile in constexprs]
    for name, tile in sorted(pairs, key=lambda pair: not _share_a_word(*pair)):
        values = [(sample.params[name], sample.constexprs[tile]) for sample in samples]
        if all(value >= 0 and size > 1 for value, size in values):
            yield f"cdiv({name}, {tile})", tuple(-(-value // size) for value, size in values)
    for name in params:
        yield name, tuple(sample.params[name] for sample in samples)
    for name in constexprs:
        yield name, tuple(sample.constexprs[name] for sample in samples)


def _share_a_word(one: str, other: str) -> bool:
    return bool({*one.lower().split("_")} & {*other.lower().split("_")})


def _common(each: Sequence[Mapping[str, int]]) -> list[str]:
    return [name for name in each[0] if all(name in other for other in each)]


def _expression(wanted: Sequence[int], factors: Mapping[str, Sequence[int]]) -> str | None:
    """Return the shortest product that gives every wanted value. A product of values that vary is preferred to a constant."""
    # a factor that divides nothing cannot be part of a product, and one that is always 1 says nothing
    useful = {
        name: values
        for name, values in factors.items()
        if set(values) != {1} and all(value and want % value == 0 for value, want in zip(values, wanted, strict=True))
    }
    alone = [name for name, values in factors.items() if name.startswith("cdiv") and [*values] == [*wanted]]
    if alone:
        return alone[0]
    if len({*wanted}) == 1 and (wanted[0] == 1 or len(wanted) > 1):
        return str(wanted[0])
    tried = 0
    for count in range(1, _FACTORS_MAX + 1):
        for names in combinations_with_replacement(useful, count):
            tried += 1
            if tried > _TRIED_MAX:
                return None
            if all(_product([useful[name][place] for name in names]) == want for place, want in enumerate(wanted)):
                return " * ".join(names)
    return str(wanted[0]) if len({*wanted}) == 1 else None


def _product(values: Sequence[int]) -> int:
    product = 1
    for value in values:
        product *= value
    return product
