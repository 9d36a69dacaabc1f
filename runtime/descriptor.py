"""Tensor descriptors of the host: what a kernel that copies whole blocks takes instead of a pointer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nojit.runtime.errors import ArgumentError

__all__ = ["TensorDescriptor"]

_RANK_MAX = 5


class TensorDescriptor:
    """A tensor, as a kernel sees it that loads and stores blocks of it: ``tensordesc<fp16[128,64]>`` in a manifest.

    Kernels take Triton's own class of that name too, and anything with these attributes. What the driver makes of it is
    kept by address, shape and strides, so that launching with an equal descriptor again costs no encoding.

    Attributes:
        base: the tensor, its address aligned to 16 bytes.
        shape: elements along each of 1 to 5 dimensions.
        strides: elements from one to the next along each dimension; multiples of 16 bytes, but for the last, which is 1.
        block_shape: elements of a block along each dimension, as the kernel was built for; None leaves the block to the
            config that is chosen.
        padding: what reads outside of the tensor give: ``zero`` or, for floats, ``nan``.
        round_f32_to_tf32: whether reads of float32 are rounded to TF32.

    Raises:
        ArgumentError: ranks differ or are not 1 to 5, the last stride is not 1, or the padding is another.
    """

    __slots__ = ("base", "block_shape", "padding", "round_f32_to_tf32", "shape", "strides")

    def __init__(  # noqa: PLR0917 - in the order of Triton's class
        self,
        base: Any,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int] | None = None,
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> None:
        self.base = base
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.block_shape = None if block_shape is None else tuple(block_shape)
        self.padding = padding
        self.round_f32_to_tf32 = round_f32_to_tf32
        ranks = (len(self.shape), len(self.strides), len(self.shape if block_shape is None else block_shape))
        if len(set(ranks)) > 1 or not 1 <= ranks[0] <= _RANK_MAX:
            got = "shape, strides and block_shape of rank {}, {} and {}".format(*ranks)
            raise ArgumentError(f"expected one rank of 1 to {_RANK_MAX}", got=got, where="TensorDescriptor")
        if self.strides[-1] != 1:
            what = "expected a last stride of 1 (try .contiguous())"
            raise ArgumentError(what, got=str(self.strides), where="TensorDescriptor")
        if padding not in ("zero", "nan"):
            raise ArgumentError("expected a padding of 'zero' or 'nan'", got=repr(padding), where="TensorDescriptor")

    @classmethod
    def from_tensor(
        cls,
        tensor: Any,
        block_shape: Sequence[int] | None = None,
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> TensorDescriptor:
        """Describe a whole tensor.

        Args:
            tensor: has ``shape`` and ``stride()``, as torch's do.
            block_shape: elements of a block along each dimension, or None.
            padding: ``zero`` or ``nan``.
            round_f32_to_tf32: whether reads are rounded.
        """
        return cls(tensor, tensor.shape, tensor.stride(), block_shape, padding, round_f32_to_tf32)

    def __repr__(self) -> str:
        return (
            f"TensorDescriptor({type(self.base).__name__}, shape={self.shape}, strides={self.strides}, "
            f"block_shape={self.block_shape}, padding={self.padding!r})"
        )
