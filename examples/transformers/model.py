"""A transformer in plain torch. Its attention, with mask and kernel, is an argument."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Function of queries, keys and values [B, H, S, D] that returns the attention, of the same shape."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of its batches."""

    batch: int
    length: int
    layers: int
    hidden: int
    heads: int
    vocabulary: int


class Layer(nn.Module):
    """Attention and a feed-forward network, each with a norm before and a residual around it."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """Apply the layer to [B, S, hidden]; return the same shape."""
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    """Map tokens to a score for each word of the vocabulary at each position."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.vocabulary, shape.hidden)
        self.places = nn.Embedding(shape.length, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape.hidden, shape.heads) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocabulary)

    def forward(self, tokens: Tensor, attend: Attend) -> Tensor:
        """Map tokens [B, S] to scores [B, S, vocabulary]."""
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x, attend)
        return self.head(self.norm(x))

    def loss(self, tokens: Tensor, targets: Tensor, attend: Attend) -> Tensor:
        """Return the mean cross entropy in fp32, over positions whose target is not -100."""
        return functional.cross_entropy(self(tokens, attend).flatten(0, 1).float(), targets.flatten())
