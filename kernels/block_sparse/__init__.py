"""Block-sparse operators over the blocks that a ``BlockLayout`` names: products, the softmax and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nojit.kernels.block_sparse.layout import BlockLayout
    from nojit.kernels.block_sparse.matmul import block_sparse_matmul
    from nojit.kernels.block_sparse.op import block_sparse_softmax, softmax_bwd

__all__ = ["BlockLayout", "block_sparse_matmul", "block_sparse_softmax", "softmax_bwd"]


def __getattr__(name: str) -> object:
    """Import the operators, and torch with them, when the first one is asked for."""
    if name == "BlockLayout":
        from nojit.kernels.block_sparse.layout import BlockLayout  # noqa: PLC0415 - importing the package must stay cheap

        return BlockLayout
    if name == "block_sparse_matmul":
        from nojit.kernels.block_sparse.matmul import block_sparse_matmul  # noqa: PLC0415 - likewise

        return block_sparse_matmul
    if name in __all__:
        from nojit.kernels.block_sparse import op  # noqa: PLC0415 - likewise

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
