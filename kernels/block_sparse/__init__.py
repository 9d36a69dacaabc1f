"""Block-sparse matrix products, softmax and its gradient, and attention; a ``BlockLayout`` lists the blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.block_sparse.attention import BlockSparseAttention
    from nojit.kernels.block_sparse.layout import BlockLayout
    from nojit.kernels.block_sparse.matmul.op import block_sparse_matmul
    from nojit.kernels.block_sparse.softmax.op import block_sparse_softmax, softmax_bwd

__all__ = ["BlockLayout", "BlockSparseAttention", "block_sparse_matmul", "block_sparse_softmax", "softmax_bwd"]

__getattr__ = lazily(
    __name__,
    __all__,
    {"BlockLayout": "layout", "BlockSparseAttention": "attention", "block_sparse_matmul": "matmul.op"},
    home="softmax.op",
)
