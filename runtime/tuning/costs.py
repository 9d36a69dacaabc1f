"""Costs of configs: expressions that estimate a time, in postfix. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from nojit.runtime import _core

__all__ = ["cost_words", "is_cost"]


def is_cost(words: str, keys: int) -> bool:
    """Say whether an expression in postfix is a number, over so many numbers of a key and the multiprocessors."""
    return _core.is_cost(words, keys)


def cost_words(ps: str, names: Sequence[str]) -> str:
    """Write a cost in postfix, with the places of names in a key instead.

    Raises:
        ExpressionError: it is no expression.
    """
    from nojit.runtime.expr.postfix import postfix, words_of

    places = {name: f"key{place}" for place, name in enumerate(names)}
    return " ".join([places.get(word, word) for word in words_of(postfix(ps))])
