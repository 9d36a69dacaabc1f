"""A decoder-only transformer: rotary positions, grouped keys and values, a gated feed-forward network, random weights.

Several sequences are decoded in parallel, each in a *slot* of a cache of fixed size. The lengths of the sequences are on the
device, so the host waits for nothing, and every step launches the same kernels on the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass

import torch
from backends import Backend
from shape import Shape
from slots import Prompt, Slots
from torch import Tensor

Attend = Callable[[int, Tensor], Tensor]
"""Function of a layer's number and of queries, keys and values of new tokens; returns the attention [M, H, D]."""
BASE = 10_000.0
"""Base of rotary positions (Su et al. 2021, https://arxiv.org/abs/2104.09864)."""
COLDEST = 1e-4
"""Lower bound of temperatures, except 0, which selects the most likely token."""


@dataclass(frozen=True)
class Layer:
    """Weights of a layer; matrices are [inputs, outputs]."""

    attention_norm: Tensor
    qkv: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Decoder:
    """A model, its cache, and the state of the sequence in each slot.

    Args:
        shape: sizes.
        backend: operators.
        device: device of weights and cache.
        dtype: dtype of weights and cache.
        seed: seed of the random weights.
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
        self._slots = Slots.empty(one.slots, device)
        self._one = torch.ones((), device=device, dtype=torch.int32)

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
    def start(self, slot: int, prompt: Sequence[int], temperature: float = 0.0, seed: int = 0) -> int:
        """Process a prompt in a slot; return the token after it.

        Args:
            slot: an empty slot.
            prompt: at least one token.
            temperature: divisor of scores before sampling; 0 selects the most likely token.
            seed: 32-bit seed of the samples; the torch backend ignores it.
        """
        length = len(prompt)
        tokens = torch.tensor(prompt, device=self.device, dtype=torch.int32)
        place = self.backend.placing(self._cosines, self._sines, None)

        def attend(layer: int, heads: Tensor) -> Tensor:
            keys, values = (cache[layer, slot : slot + 1] for cache in (self._keys, self._values))
            q = place(heads, keys, values).transpose(0, 1)[None]
            mixed = self.backend.attend_prompt(q, keys[:, :, :length], values[:, :, :length])
            return mixed[0].transpose(0, 1)

        scores = self._scores(self._run(tokens, attend)[-1:])
        warmth = max(temperature, COLDEST) if temperature else 0.0
        self.backend.choose_first(scores, self._slots, Prompt(slot, length, warmth, seed))
        return int(self._slots.tokens[slot])

    @torch.inference_mode()
    def step(self) -> list[int]:
        """Return the next token of each slot; values of empty slots are meaningless."""
        slots = self._slots
        place = self.backend.placing(self._cosines, self._sines, slots.lens)

        def attend(layer: int, heads: Tensor) -> Tensor:
            keys, values = self._keys[layer], self._values[layer]
            q = place(heads, keys, values)[:, :, None]
            return self.backend.attend_cache(q, keys, values, slots.lens)[:, :, 0]

        self.backend.choose_next(self._scores(self._run(slots.tokens, attend)), slots)
        tokens: list[int] = slots.tokens.tolist()
        return tokens

    def release(self, slot: int) -> None:
        """Free a slot."""
        self._slots.lens[slot].copy_(self._one)

    def rehearse(self, lengths: Iterable[int]) -> None:
        """Select the variants for prompts of these lengths and for a step, without launching; only memory is allocated on the device."""
        if self.backend.rehearsing is None:
            return
        # one layer suffices: others differ only in the tensor maps of their weights, which a request encodes as fast
        shallow = copy(self)
        shallow._layers = self._layers[:1]  # noqa: SLF001 - its own
        with self.backend.rehearsing():
            for length in lengths:
                shallow.start(0, [0] * length)
            shallow.step()

    def _run(self, tokens: Tensor, attend: Attend) -> Tensor:
        """Return the last layer's states of tokens."""
        one, run, rows = self.shape, self.backend, len(tokens)
        total = run.embed(self._words, tokens)
        states = run.norm(total, self._layers[0].attention_norm)
        for number, layer in enumerate(self._layers):
            heads = run.multiply(states, layer.qkv).view(rows, -1, one.dim)
            mixed = attend(number, heads).reshape(rows, -1)
            states, total = run.add_norm(run.multiply(mixed, layer.out), total, layer.mlp_norm)
            gated = run.gate(*run.multiply(states, layer.gate_up).chunk(2, -1))
            last = number + 1 == len(self._layers)
            after = self._norm if last else self._layers[number + 1].attention_norm
            states, total = run.add_norm(run.multiply(gated, layer.down), total, after)
        return states

    def _scores(self, states: Tensor) -> Tensor:
        return self.backend.multiply(states, self._head)
