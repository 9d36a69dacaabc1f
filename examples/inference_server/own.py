"""Launches of the example's kernels (kernel.py), from bundles, the JIT or the interpreter, as for nojit's operators."""

from __future__ import annotations

from collections.abc import Callable

from nojit.kernels import library
from slots import Prompt, Slots
from torch import Tensor


def embed(words: Tensor, tokens: Tensor) -> Tensor:
    """Return the rows of [V, W] for tokens, int32 [M]."""
    rows, width = len(tokens), words.shape[1]
    found = words.new_empty(rows, width)
    library.get("embed_rows")(words, tokens, found, rows, width)
    return found


def placing(cosines: Tensor, sines: Tensor, lens: Tensor | None) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return a `backends.Place` for the heads of tokens."""

    def place(heads: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        rows, every, dim = heads.shape
        _, shared, room, _ = keys.shape
        own = every - 2 * shared
        counts = (rows, own, shared, room)
        library.get("place_heads")(heads, cosines, sines, keys, values, lens, *counts, DIM=dim)
        return heads[:, :own]

    return place


def choose_first(scores: Tensor, slots: Slots, prompt: Prompt) -> None:
    """Choose the token after a prompt from its scores [1, V]."""
    state = (slots.tokens, slots.lens, slots.temperatures, slots.seeds)
    library.get("choose_first")(scores, *state, scores.shape[1], *prompt)


def choose_next(scores: Tensor, slots: Slots) -> None:
    """Choose the next token of each slot from scores [slots, V]."""
    state = (slots.tokens, slots.lens, slots.temperatures, slots.seeds)
    library.get("choose_next")(scores, *state, *scores.shape)
