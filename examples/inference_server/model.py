"""A decoder-only transformer: rotary positions, grouped keys and values, a gated feed-forward network, random weights.

Several sequences are decoded side by side, each in a *slot* of a cache whose size never changes. A step reads how far each
slot has come from the device: nothing waits for it, and every step launches the same kernels over the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from backends import Backend
from torch import Tensor

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""From the number of a layer, queries, keys and values of new tokens to what queries get."""
BASE = 10_000.0
"""Of rotary positions (Su et al. 2021, https://arxiv.org/abs/2104.09864)."""
COLDEST = 1e-4
"""Temperatures below it are taken for it, but for 0, which means the likeliest token."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of what it serves at once; by default 0.9 billion weights."""

    layers: int = 16
    width: int = 2048
    heads: int = 16
    kv_heads: int = 4
    inner: int = 5632
    vocabulary: int = 32_000
    context: int = 4096
    """Tokens of a prompt and its answer, at most."""
    slots: int = 8
    """Sequences that are decoded side by side."""

    @property
    def dim(self) -> int:
        """Return the width of a head."""
        return self.width // self.heads


SMALL = Shape(layers=2, width=64, heads=4, kv_heads=2, inner=96, vocabulary=300, context=128, slots=3)
"""A model that a CPU has time for."""


@dataclass(frozen=True)
class Layer:
    """The weights of a layer; matrices are [inputs, outputs]."""

    attention_norm: Tensor
    qkv: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Decoder:
    """A model, its cache, and where the sequence in each slot stands.

    Args:
        shape: its sizes.
        backend: computes all but embeddings, rotary positions, and the choice of a token, which are torch's.
        device: where it runs.
        dtype: of weights and cache.
        seed: what weights are drawn from.
    """

    def __init__(self, shape: Shape, backend: Backend, device: torch.device, dtype: torch.dtype, seed: int = 0) -> None:
        self.shape, self.backend, self.device = shape, backend, device
        self._random = torch.Generator(device).manual_seed(seed)
        self._dtype = dtype
        one = shape
        self._words = self._matrix(one.width, one.vocabulary).t() * math.sqrt(one.width)
        self._layers = [self._layer() for _ in range(one.layers)]
        self._norm = self._ones()
        self._head = self._matrix(one.width, one.vocabulary)
        self._cosines, self._sines = self._turns()
        cache = (one.layers, one.slots, one.kv_heads, one.context, one.dim)
        self._keys, self._values = (torch.zeros(cache, device=device, dtype=dtype) for _ in range(2))
        self._rows = torch.arange(one.slots, device=device)
        self._active, self._seen = (torch.zeros(one.slots, device=device, dtype=torch.int32) for _ in range(2))
        self._tokens = torch.zeros(one.slots, device=device, dtype=torch.int64)
        self._temperatures = torch.zeros(one.slots, device=device)

    def _matrix(self, inputs: int, outputs: int) -> Tensor:
        made = torch.randn(outputs, inputs, generator=self._random, device=self.device, dtype=self._dtype)
        return (made / math.sqrt(inputs)).t()

    def _ones(self) -> Tensor:
        return torch.ones(self.shape.width, device=self.device, dtype=self._dtype)

    def _layer(self) -> Layer:
        one = self.shape
        return Layer(
            attention_norm=self._ones(),
            qkv=self._matrix(one.width, (one.heads + 2 * one.kv_heads) * one.dim),
            out=self._matrix(one.heads * one.dim, one.width),
            mlp_norm=self._ones(),
            gate_up=self._matrix(one.width, 2 * one.inner),
            down=self._matrix(one.inner, one.width),
        )

    def _turns(self) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of each position's angles, [context, dim]."""
        half = torch.arange(0, self.shape.dim, 2, device=self.device) / self.shape.dim
        angles = torch.outer(torch.arange(self.shape.context, device=self.device), BASE**-half).repeat(1, 2)
        return angles.cos().to(self._dtype), angles.sin().to(self._dtype)

    @torch.inference_mode()
    def start(self, slot: int, prompt: Sequence[int], temperature: float = 0.0) -> int:
        """Read a prompt into a slot; return the token after it.

        Args:
            slot: one that no sequence is in.
            prompt: at least one token.
            temperature: what scores are divided by before a token is drawn; 0 takes the likeliest.
        """
        length = len(prompt)
        self._temperatures[slot] = temperature
        tokens = torch.tensor(prompt, device=self.device)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self._keys[layer, slot, :, :length] = k[0]
            self._values[layer, slot, :, :length] = v[0]
            return self.backend.attend_prompt(q, k, v)

        states = self._run(tokens, (1, length), self._cosines[:length], self._sines[:length], attend)
        (token,) = chosen = self._choose(states[-1:], self._temperatures[slot : slot + 1])
        self._tokens[slot : slot + 1] = chosen
        self._seen[slot], self._active[slot] = length, 1
        return int(token)

    @torch.inference_mode()
    def step(self) -> list[int]:
        """Return the next token of each slot; what is said of slots without a sequence means nothing."""
        positions = self._seen.long()
        seen = self._seen + 1

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self._keys[layer], self._values[layer]
            keys[self._rows, :, positions], values[self._rows, :, positions] = k[:, :, 0], v[:, :, 0]
            return self.backend.attend_cache(q, keys, values, seen)

        cosines, sines = (turns[positions][:, None, None] for turns in (self._cosines, self._sines))
        states = self._run(self._tokens, (self.shape.slots, 1), cosines, sines, attend)
        self._tokens.copy_(self._choose(states, self._temperatures))
        self._seen += self._active
        tokens: list[int] = self._tokens.tolist()
        return tokens

    def release(self, slot: int) -> None:
        """Let another sequence have a slot."""
        self._seen[slot], self._active[slot] = 0, 0

    def _run(self, tokens: Tensor, rows: tuple[int, int], cosines: Tensor, sines: Tensor, attend: Attend) -> Tensor:
        """Return the last layer's states of `rows`: sequences, and tokens of each."""
        one, run = self.shape, self.backend
        total = self._words[tokens]
        states = run.norm(total, self._layers[0].attention_norm)
        for number, layer in enumerate(self._layers):
            heads = run.multiply(states, layer.qkv).view(*rows, -1, one.dim).transpose(1, 2)
            qk, v = heads.split((one.heads + one.kv_heads, one.kv_heads), 1)
            q, k = rotate(qk, cosines, sines).split((one.heads, one.kv_heads), 1)
            mixed = attend(number, q, k, v).transpose(1, 2).reshape(len(tokens), -1)
            states, total = run.add_norm(run.multiply(mixed, layer.out), total, layer.mlp_norm)
            gated = run.gate(*run.multiply(states, layer.gate_up).chunk(2, -1))
            last = number + 1 == one.layers
            after = self._norm if last else self._layers[number + 1].attention_norm
            states, total = run.add_norm(run.multiply(gated, layer.down), total, after)
        return states

    def _choose(self, states: Tensor, temperatures: Tensor) -> Tensor:
        scores = self.backend.multiply(states, self._head).float()
        # the largest of scores with Gumbel noise is a draw from their softmax
        noise = torch.empty_like(scores).exponential_().log_()
        drawn = scores / temperatures.clamp_min(COLDEST)[:, None] - noise
        return torch.where(temperatures[:, None] > 0, drawn, scores).argmax(-1)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn pairs of dimensions of [B, H, M, D] by angles of each position."""
    one, other = x.chunk(2, -1)
    return x * cosines + torch.cat((-other, one), -1) * sines
