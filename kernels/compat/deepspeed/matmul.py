"""DeepSpeed's block-sparse matrix product: the constructor takes a layout and a mode, each call the operands."""

# ruff: noqa: PLR0917 - DeepSpeed's signatures

from __future__ import annotations

import torch
from nojit.kernels import library
from nojit.kernels.block_sparse import BlockLayout, block_sparse_matmul
from nojit.kernels.calls.arguments import check_flags, check_tensors, refuse_value
from nojit.kernels.compat.deepspeed.patterns import layout_of
from torch import Tensor

__all__ = ["MatMul"]


class MatMul:
    """Block-sparse product: dense by dense at the active blocks, or between a sparse and a dense operand."""

    def __init__(
        self,
        layout: Tensor | BlockLayout,
        block: int,
        mode: str,
        trans_a: bool = False,
        trans_b: bool = False,
        bench: bool = False,
    ) -> None:
        """Set the layout and the mode.

        Args:
            layout: active blocks of the sparse matrix as it is stored: [H, rows / block, columns / block] of zeros and
                ones, or without H if all heads share it; or a `BlockLayout`.
            block: rows and columns of a block.
            mode: ``"sdd"`` (sparse = dense x dense), ``"dsd"`` (dense = sparse x dense) or ``"dds"`` (dense = dense x
                sparse).
            trans_a: multiply by the transpose of a, whether a is dense or sparse.
            trans_b: multiply by the transpose of b, whether b is dense or sparse.
            bench: accepted and ignored: nothing is measured, and the times are None.

        Raises:
            NotImplementedError: an unknown mode.
            ArgumentError: the layout is not a tensor of integers, the block size not an int, or a flag not a bool.
            ValueError: the layout has another number of dimensions, or is a `BlockLayout` of another block size.
        """
        if str(mode) not in {"sdd", "dsd", "dds"}:
            raise NotImplementedError("Supported modes are: sdd, dsd, dds")
        if isinstance(layout, Tensor) and layout.dim() not in {2, 3}:
            raise ValueError(
                f"Layout should be a 2 or 3 dimensional tensor of 0s and 1s, got shape {tuple(layout.shape)}"
            )
        check_flags(trans_a=trans_a, trans_b=trans_b)
        self.block_layout = layout_of(layout, block)
        self.layout = layout
        self.block = block
        self.mode = mode
        self.trans_a = trans_a
        self.trans_b = trans_b
        self.bench = bench
        self.time_c: float | None = None
        self.time_da: float | None = None
        self.time_db: float | None = None

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply a by b.

        Args:
            a: dense [Z, H, M, K], or sparse [Z, nnz, block, block]; fp16, bf16 or fp32. Missing leading dimensions are
                added, and dropped from the result.
            b: dense [Z, H, K, N], or sparse; of the same device, and the same dtype unless autocast casts both.

        Returns:
            The product, differentiable in a and b.

        Raises:
            ArgumentError: an operand is not a tensor.
            ValueError: devices, dtypes or shapes do not match.
        """
        check_tensors(a=a, b=b)
        dims = max(a.dim(), b.dim())
        a, b = self._prepare(a, b)
        c: Tensor = block_sparse_matmul(a, b, self.block_layout, self.mode, trans_a=self.trans_a, trans_b=self.trans_b)
        while c.dim() > dims and c.shape[0] == 1:
            c = c.squeeze(0)
        return c

    def _prepare(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Validate the operands with DeepSpeed's messages, apply autocast, and return them with 4 dimensions."""
        if a.device != b.device:
            raise ValueError(
                f"Inputs must be on the same device; got {a.device} for tensor A and {b.device} for tensor B"
            )
        if a.device.type not in library.devices():
            raise ValueError("Only GPU devices are supported for now")
        if torch.is_autocast_enabled(a.device.type):
            dtype = torch.get_autocast_dtype(a.device.type)
            a, b = a.to(dtype), b.to(dtype)
        elif a.dtype != b.dtype:
            raise ValueError(f"Inputs must be the same dtype; got {a.dtype} for A and {b.dtype} for B")
        for name, value in (("a", a), ("b", b)):
            if value.dim() > 4:
                raise ValueError("Tensors with more than 4 dimensions are not currently supported")
            if value.dim() < 2:
                refuse_value(name, "at least 2 dimensions", f"shape {tuple(value.shape)}")
        if self.mode == "sdd":
            self._check_depth(a, b)
        elif self.mode == "dsd":
            self._check_mixed("B", b, self.trans_b, "A", a, self.trans_a)
        else:
            self._check_mixed("A", a, self.trans_a, "B", b, self.trans_b)
        return _with_four_dims(a), _with_four_dims(b)

    def _check_depth(self, a: Tensor, b: Tensor) -> None:
        """Require two dense operands with the same K."""
        a_dim, b_dim = (-2 if self.trans_a else -1), (-1 if self.trans_b else -2)
        if a.shape[a_dim] != b.shape[b_dim]:
            raise ValueError(
                f"Size of tensor A along the {_side(a_dim)} dim ({a.shape[a_dim]}) must match size of tensor B along"
                f" the {_side(b_dim)} dim ({b.shape[b_dim]})"
            )

    def _check_mixed(
        self, dense_name: str, dense: Tensor, dense_trans: bool, sparse_name: str, sparse: Tensor, sparse_trans: bool
    ) -> None:
        """Require that a dense and a sparse operand match the layout; `*_trans` tell which ones are transposed first."""
        # K is the rows of the second operand, and the columns of the first
        dense_dim = -2 if (dense_name == "B") != dense_trans else -1
        sparse_dim = -2 if (sparse_name == "B") != sparse_trans else -1
        inner = self.block_layout.shape[sparse_dim]
        if dense.shape[dense_dim] != inner:
            raise ValueError(
                f"Expected tensor {dense_name} to have size {inner} at dim {dense_dim % dense.dim()}, got"
                f" {dense.shape[dense_dim]}."
            )
        heads = dense.shape[-3] if dense.dim() > 2 else 1
        blocks = self.block_layout.nnz * (heads if self.block_layout.heads is None else 1)
        expected = (blocks, self.block, self.block)
        if tuple(sparse.shape[-3:]) != expected:
            raise ValueError(
                f"Expected tensor with trailing dimensions of shape {expected} for argument {sparse_name}, got"
                f" {sparse.shape}"
            )


def _with_four_dims(value: Tensor) -> Tensor:
    return value if value.dim() == 4 else value[(None,) * (4 - value.dim())]


def _side(dim: int) -> str:
    return "last" if dim == -1 else "second to last"
