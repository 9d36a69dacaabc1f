"""The order of a call's configs by measured problems, and by estimates made of them: the engine's answers for Python. Pure.

``engine/select/ranking.h`` says by which rules.
"""

from __future__ import annotations

from collections.abc import Sequence

from nojit.runtime import _core
from nojit.runtime.table.tuning import TuningBlock

__all__ = ["behind_in_sum", "cost_words", "estimates", "is_cost", "nearest", "ranked"]


def nearest(points: Sequence[tuple[int, ...]], key: tuple[int, ...]) -> int:
    """Return the place of the point nearest to a key: an equal one, else the least sum of `|log2(a / b)|`.

    0 counts as a half. Of equally near points the first is taken.

    Args:
        points: at least one, each of as many numbers from 0 as the key, which has one or more.
        key: as many numbers from 0 as each point.
    """
    return _core.nearest(points, key)


def ranked(block: TuningBlock, key: tuple[int, ...], multiprocessors: int) -> tuple[int, ...]:
    """Order the configs of a block for a key, the best first.

    Args:
        block: the measured problems.
        key: as rounded as theirs.
        multiprocessors: of the device.
    """
    return _core.rank_configs((*block.columns(), tuple(block.estimates())), key, multiprocessors)


def behind_in_sum(use: Sequence[Sequence[int]], behinds: Sequence[Sequence[int]]) -> dict[int, float]:
    """Add up how far each config is behind the best of rows: of each row its configs, and how far each of them is behind.

    A config that only some rows have counts elsewhere as an octave behind the row's slowest.
    """
    return _core.behind_in_sum(tuple(map(tuple, use)), tuple(map(tuple, behinds)))


def estimates(block: TuningBlock, key: tuple[int, ...], multiprocessors: int) -> dict[int, int | None]:
    """Compute what each config of a block is estimated to take, in picoseconds; None where that cannot be computed."""
    return _core.estimate(tuple(block.estimates()), key, multiprocessors)


def is_cost(words: str, keys: int) -> bool:
    """Say whether an expression in postfix is a number, over so many numbers of a key and the multiprocessors."""
    return _core.is_cost(words, keys)


def cost_words(ps: str, names: Sequence[str]) -> str:
    """Write a cost in postfix, with the places of names in a key instead.

    Raises:
        ExpressionError: it is no expression.
    """
    from nojit.runtime.expr.postfix import postfix, words_of  # noqa: PLC0415 - bundles have it done

    places = {name: f"key{place}" for place, name in enumerate(names)}
    return " ".join([places.get(word, word) for word in words_of(postfix(ps))])
