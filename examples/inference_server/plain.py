"""The model's operators in plain torch, for comparison with nojit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from slots import Prompt, Slots
from torch import Tensor
from torch.nn import functional

EPS = 1e-5
"""Epsilon of the norms."""


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Return the norm of rows."""
    return functional.rms_norm(x, weight.shape, weight, EPS)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the norm of a sum, and the sum."""
    total = x + residual
    return rms_norm(total, weight), total


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Return ``silu(gate) * up``."""
    return functional.silu(gate) * up


def attend_prompt(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return causal attention with grouped keys and values."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def attend_cache(q: Tensor, keys: Tensor, values: Tensor, lens: Tensor) -> Tensor:
    """Return attention of each row to its first `lens` keys."""
    # heads with the same keys become queries of one head, so that torch does not copy keys
    grouped = q.reshape(len(q), keys.shape[1], -1, q.shape[-1])
    visible = torch.arange(keys.shape[2], device=q.device) < lens[:, None, None, None]
    return functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=visible).reshape(q.shape)


def embed(words: Tensor, tokens: Tensor) -> Tensor:
    """Return the rows of [V, W] for tokens."""
    return words[tokens]


def placing(cosines: Tensor, sines: Tensor, lens: Tensor | None) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return a `backends.Place` for the heads of tokens."""
    if lens is None:
        return lambda heads, keys, values: _place_prompt(heads, keys, values, cosines, sines)
    positions = lens.long() - 1
    rows = torch.arange(len(lens), device=lens.device)
    cosines, sines = cosines[positions][:, None], sines[positions][:, None]

    def place(heads: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = _turned(heads, keys.shape[1], cosines, sines)
        keys[rows, :, positions], values[rows, :, positions] = k, v
        return q

    return place


def _place_prompt(heads: Tensor, keys: Tensor, values: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    length = len(heads)
    q, k, v = _turned(heads, keys.shape[1], cosines[:length, None], sines[:length, None])
    keys[0, :, :length], values[0, :, :length] = k.transpose(0, 1), v.transpose(0, 1)
    return q


def _turned(heads: Tensor, shared: int, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split heads [M, H + 2 * Hkv, D], and rotate pairs of dimensions of queries and keys by the angles of their positions."""
    turning, v = heads.split((heads.shape[1] - shared, shared), 1)
    one, other = turning.chunk(2, -1)
    turned = turning * cosines + torch.cat((-other, one), -1) * sines
    q, k = turned.split((turned.shape[1] - shared, shared), 1)
    return q, k, v


def choose_first(scores: Tensor, slots: Slots, prompt: Prompt) -> None:
    """Choose the token after a prompt from its scores [1, V]; sampling uses torch's generator and ignores the seed."""
    slot = prompt.slot
    slots.temperatures[slot], slots.lens[slot], slots.seeds[slot] = prompt.temperature, prompt.length + 1, prompt.seed
    slots.tokens[slot : slot + 1] = _chosen(scores, slots.temperatures[slot : slot + 1])


def choose_next(scores: Tensor, slots: Slots) -> None:
    """Choose the next token of each slot from scores [slots, V]."""
    slots.tokens.copy_(_chosen(scores, slots.temperatures))
    slots.lens.add_(slots.lens > 1)


def _chosen(scores: Tensor, temperatures: Tensor) -> Tensor:
    scores = scores.float()
    # the largest of scores with Gumbel noise is a sample of their softmax
    noise = torch.empty_like(scores).exponential_().log_()
    drawn = scores / temperatures[:, None] - noise
    return torch.where(temperatures[:, None] > 0, drawn, scores).argmax(-1)
