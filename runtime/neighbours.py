"""What measured problems, and estimates made of them, say about the configs of a call. Pure.

The C core ranks configs by the same rules (``_core/ranking.c``), for a first launch waits for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, floor, log2

from nojit.runtime import _core
from nojit.runtime.expr_ops import INT64_MAX, ExpressionError
from nojit.runtime.tuning_table import TuningBlock

__all__ = ["REACH", "behind_in_sum", "cost_words", "estimates", "is_cost", "nearest", "ranked", "ranked_one_by_one"]

REACH = 0.3
"""How many octaves farther than the nearest a problem is whose word counts 1/e of the nearest's."""
_SPAN = 4 * REACH
"""Problems farther than that behind the nearest have no say: each would weigh less than 2 %."""
_ABSENT = 1000
"""How far behind the slowest of a row a config counts that the row does not have: twice its time."""
# what an expression in postfix ends with that is a bool, or nothing
_NO_NUMBERS = frozenset(
    ["==", "!=", "<", "<=", ">", ">=", "and", "or", "not()", "has()", "aligned()", "true", "false", "none"]
)
# of a distance in log space, and of a sum: what differs by less is a tie, whatever the last bit of a logarithm is
_DISTANCE_STEPS = 1e9
_SUM_STEPS = 1e6


def nearest(points: Sequence[tuple[int, ...]], key: tuple[int, ...]) -> int:
    """Return the place of the point nearest to a key: an equal one, else the least sum of `|log2(a / b)|`.

    0 counts as a half. Of equally near points the first is taken.

    Args:
        points: at least one, each of as many numbers from 0 as the key, which has one or more.
        key: likewise.
    """
    if key in points:
        return points.index(key)
    distances = _distances(points, key)
    return distances.index(min(distances))


def ranked(block: TuningBlock, key: tuple[int, ...], multiprocessors: int) -> tuple[int, ...]:
    """Order the configs of a block for a key, the best first.

    A problem with the same key decides alone. Else estimates do, if the block has any: the least comes first, and what
    cannot be computed last. Without them the near problems decide together: a config's rank is the mean of how far it
    is behind the best of each, where a problem that is `d` octaves farther than the nearest weighs `exp(-d / REACH)`. Of
    configs that are alike so, the nearest problem's order decides.

    Args:
        block: the measured problems.
        key: as rounded as theirs.
        multiprocessors: of the device.
    """
    order = _core.rank_configs(block.text, key, block.costs, multiprocessors)
    return ranked_one_by_one(block, key, multiprocessors) if order is None else order


def ranked_one_by_one(block: TuningBlock, key: tuple[int, ...], multiprocessors: int) -> tuple[int, ...]:
    """Rank as `ranked`, whatever the numbers are."""
    at, use, behinds = block.columns()
    if key in at:
        return use[at.index(key)]
    if block.costs:
        costs = estimates(block, key, multiprocessors)
        return tuple(sorted(costs, key=lambda config: INT64_MAX if (cost := costs[config]) is None else cost))
    distances = _distances(at, key)
    least = min(distances)
    near = [(distance - least, place) for place, distance in enumerate(distances) if distance - least < _SPAN]
    first = use[distances.index(least)]
    if len(near) == 1:
        return first
    sums = dict.fromkeys(first, 0.0)
    sums.update(behind_in_sum([(exp(-farther / REACH), use[place], behinds[place]) for farther, place in near]))
    return tuple(sorted(sums, key=lambda config: floor(sums[config] * _SUM_STEPS + 0.5)))


def behind_in_sum(rows: Sequence[tuple[float, Sequence[int], Sequence[int]]]) -> dict[int, float]:
    """Add up how far each config is behind the best of rows: a weight, its configs, and how far each of them is behind.

    A config that only some rows have counts elsewhere as an octave behind the row's slowest.
    """
    sums = dict.fromkeys([config for _, use, _ in rows for config in use], 0.0)
    # what a config counts that no row has: to go through all configs for each row would take too long
    nowhere = 0.0
    for weight, use, behinds in rows:
        absent = max(behinds) + _ABSENT
        nowhere += weight * absent
        for config, behind in zip(use, behinds, strict=True):
            sums[config] += weight * (behind - absent)
    return {config: nowhere + less for config, less in sums.items()}


def estimates(block: TuningBlock, key: tuple[int, ...], multiprocessors: int) -> dict[int, int | None]:
    """Compute what each config of a block is estimated to take, in picoseconds; None where that cannot be computed."""
    facts = dict(zip(_names(len(key)), (*key, multiprocessors), strict=True))
    return {config: _estimate(words, facts) for config, words in block.estimates()}


def is_cost(words: str, keys: int) -> bool:
    """Say whether an expression in postfix is a number, over so many numbers of a key and the multiprocessors."""
    listed = words.split()
    return (
        words == " ".join(listed)
        and "'" not in words
        and '"' not in words
        and not _NO_NUMBERS.intersection(listed[-1:])
        and bool(_core.assemble(words, {}, _names(keys), _no_constant))
    )


def cost_words(ps: str, names: Sequence[str]) -> str:
    """Write a cost in postfix, with the places of names in a key instead.

    Raises:
        ExpressionError: it is no expression.
    """
    from nojit.runtime.postfix import postfix, words_of  # noqa: PLC0415 - bundles have it done

    places = {name: f"key{place}" for place, name in enumerate(names)}
    return " ".join([places.get(word, word) for word in words_of(postfix(ps))])


def _names(keys: int) -> dict[str, int]:
    """Return the place of each name that a cost may have."""
    return {**{f"key{place}": place for place in range(keys)}, "multiprocessors": keys}


def _estimate(words: str, facts: dict[str, int]) -> int | None:
    from nojit.runtime.postfix import evaluate  # noqa: PLC0415 - the core estimates for calls

    try:
        cost = evaluate(words, facts)
    except ExpressionError:
        return None
    return cost if type(cost) is int else None


def _no_constant(value: object) -> tuple[int, int]:
    raise ExpressionError(f"no number: {value!r}")


def _distances(points: Sequence[tuple[int, ...]], key: tuple[int, ...]) -> list[float]:
    sums = map(sum, zip(*map(_along, zip(*points, strict=True), key), strict=True))
    return [floor(distance * _DISTANCE_STEPS + 0.5) / _DISTANCE_STEPS for distance in sums]


def _along(values: tuple[int, ...], to: int) -> Iterator[float]:
    """Yield how far each value is from another in log space; few of them differ."""
    there = log2(to or 0.5)
    known = {value: abs(log2(value or 0.5) - there) for value in {*values}}
    return map(known.__getitem__, values)
