"""A BERT-like encoder of long texts with BigBird's attention: it predicts masked tokens."""

import torch
from model import Attend, Shape
from nojit.kernels.compat.deepspeed import BigBirdSparsityConfig, SparseSelfAttention
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

SHAPE = Shape(batch=4, length=4096, layers=4, hidden=768, heads=12, vocabulary=8192)
HIDDEN_WORD = 0


def attentions(shape: Shape, block: int = 64, device: str = "cuda") -> dict[str, Attend]:
    """Return BigBird's attention over sparse blocks, and over a dense mask of the same blocks."""
    pattern = BigBirdSparsityConfig(shape.heads, block, num_random_blocks=2)
    sparse = SparseSelfAttention(pattern, max_seq_length=shape.length).to(device)
    mask = sparse.master_layout[0].bool().repeat_interleave(block, 0).repeat_interleave(block, 1)
    return {"nojit": sparse, "torch": lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask)}


def make_batch(shape: Shape, device: str = "cuda") -> tuple[Tensor, Tensor]:
    """Draw tokens [B, S], some of them hidden, and targets: the hidden words, and -100 elsewhere."""
    words = torch.randint(1, shape.vocabulary, (shape.batch, shape.length), device=device)
    hidden = torch.rand(words.shape, device=device) < 0.15
    return words.masked_fill(hidden, HIDDEN_WORD), words.masked_fill(~hidden, -100)
