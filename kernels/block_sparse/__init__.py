"""Block-sparse operators over the blocks that a ``BlockLayout`` names: products, the softmax and its gradient, attention."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nojit.kernels.block_sparse.attention import BlockSparseAttention
    from nojit.kernels.block_sparse.layout import BlockLayout
    from nojit.kernels.block_sparse.matmul import block_sparse_matmul
    from nojit.kernels.block_sparse.op import block_sparse_softmax, softmax_bwd

__all__ = ["BlockLayout", "BlockSparseAttention", "block_sparse_matmul", "block_sparse_softmax", "softmax_bwd"]

_MODULES: Final = {
    "BlockLayout": "layout",
    "BlockSparseAttention": "attention",
    "block_sparse_matmul": "matmul",
    "block_sparse_softmax": "op",
    "softmax_bwd": "op",
}


def __getattr__(name: str) -> object:
    """Import an operator, and torch with it, when it is first asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found
