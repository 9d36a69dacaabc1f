"""The example's own kernels (kernel.py), found in bundles, by the JIT or in the interpreter as those of nojit's operators are."""

from __future__ import annotations

from collections.abc import Callable

from nojit.kernels import library
from slots import Prompt, Slots
from torch import Tensor


def embed(words: Tensor, tokens: Tensor) -> Tensor:
    """Return the rows of [V, W] that tokens, int32 [M], name."""
    rows, width = len(tokens), words.shape[1]
    found = words.new_empty(rows, width)
    library.get("embed_rows")(words, tokens, found, rows, width)
    return found


def placing(cosines: Tensor, sines: Tensor, lens: Tensor | None) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return what places the heads of tokens: see `backends.Backend`."""

    def place(heads: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        rows, every, dim = heads.shape
        _, shared, room, _ = keys.shape
        own = every - 2 * shared
        counts = (rows, own, shared, room)
        library.get("place_heads")(heads, cosines, sines, keys, values, lens, *counts, DIM=dim)
        return heads[:, :own]

    return place


def choose_first(scores: Tensor, slots: Slots, prompt: Prompt) -> None:
    """Choose the token behind a prompt, from its scores [1, V]."""
    state = (slots.tokens, slots.lens, slots.temperatures, slots.seeds)
    library.get("choose_first")(scores, *state, scores.shape[1], *prompt)


def choose_next(scores: Tensor, slots: Slots) -> None:
    """Choose the next token of each slot, from scores [slots, V]."""
    state = (slots.tokens, slots.lens, slots.temperatures, slots.seeds)
    library.get("choose_next")(scores, *state, *scores.shape)
