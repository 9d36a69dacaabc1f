"""A language model: each position predicts the next token from the tokens before it."""

from functools import partial

import torch
from model import Attend, Shape
from nojit.kernels.flash_attention import flash_attention
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

SHAPE = Shape(batch=4, length=4096, layers=4, hidden=1024, heads=8, vocabulary=8192)


def attentions() -> dict[str, Attend]:
    """Return causal attention by this library's kernels, and by torch's."""
    return {
        "nojit": partial(flash_attention, is_causal=True),
        "torch": partial(scaled_dot_product_attention, is_causal=True),
    }


def make_batch(shape: Shape, device: str = "cuda") -> tuple[Tensor, Tensor]:
    """Draw tokens [B, S], and targets: the words that follow them."""
    words = torch.randint(shape.vocabulary, (shape.batch, shape.length + 1), device=device)
    return words[:, :-1], words[:, 1:]
