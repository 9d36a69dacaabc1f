"""Drop-in replacements for ``deepspeed.ops.sparse_attention`` and ``triton_flash_attn``, on nojit's operators.

Names, signatures, layouts, messages and modules are DeepSpeed's, so a program only changes its imports.
docs/deepspeed.md lists the differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nojit.kernels.lazy import lazily

if TYPE_CHECKING:
    from nojit.kernels.compat.deepspeed.bert_sparse_self_attention import BertSparseSelfAttention
    from nojit.kernels.compat.deepspeed.matmul import MatMul
    from nojit.kernels.compat.deepspeed.softmax import Softmax
    from nojit.kernels.compat.deepspeed.sparse_attention_utils import SparseAttentionUtils
    from nojit.kernels.compat.deepspeed.sparse_self_attention import SparseSelfAttention
    from nojit.kernels.compat.deepspeed.sparsity_config import (
        BigBirdSparsityConfig,
        BSLongformerSparsityConfig,
        DenseSparsityConfig,
        FixedSparsityConfig,
        LocalSlidingWindowSparsityConfig,
        SparsityConfig,
        VariableSparsityConfig,
    )
    from nojit.kernels.compat.deepspeed.triton_ops import triton_flash_attn

__all__ = [
    "BSLongformerSparsityConfig",
    "BertSparseSelfAttention",
    "BigBirdSparsityConfig",
    "DenseSparsityConfig",
    "FixedSparsityConfig",
    "LocalSlidingWindowSparsityConfig",
    "MatMul",
    "Softmax",
    "SparseAttentionUtils",
    "SparseSelfAttention",
    "SparsityConfig",
    "VariableSparsityConfig",
    "triton_flash_attn",
]

_MODULES: Final = {
    "BertSparseSelfAttention": "bert_sparse_self_attention",
    "MatMul": "matmul",
    "Softmax": "softmax",
    "SparseAttentionUtils": "sparse_attention_utils",
    "SparseSelfAttention": "sparse_self_attention",
    "triton_flash_attn": "triton_ops",
}
"""The module that defines each name; names not listed are sparsity patterns."""

__getattr__ = lazily(__name__, __all__, _MODULES, home="sparsity_config")
