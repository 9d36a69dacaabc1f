"""Tensor descriptors of the host, for kernels that copy whole blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nojit.runtime import _core
from nojit.runtime.errors import ArgumentError

__all__ = ["TensorDescriptor"]


class TensorDescriptor:
    """A tensor for kernels that load and store blocks of it: ``tensordesc<fp16[128,64]>`` in a manifest.

    Kernels also take Triton's class of that name, and any object with these attributes. nojit caches the driver's tensor map by address,
    shape and strides, so a launch with an equal descriptor encodes nothing.

    Attributes:
        base: the tensor; its address is aligned to 16 bytes.
        shape: elements along each of 1 to 5 dimensions.
        strides: elements between neighbours in each dimension; multiples of 16 bytes, except the last, which is 1.
        block_shape: elements of a block in each dimension, as the kernel was built; None leaves the block to the selected config.
        padding: value of reads outside the tensor: ``zero`` or, for floats, ``nan``.
        round_f32_to_tf32: whether reads of float32 are rounded to TF32.

    Raises:
        ArgumentError: ranks differ or are not 1 to 5, the last stride is not 1, or the padding is invalid.
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
        if len(set(ranks)) > 1 or not 1 <= ranks[0] <= _core.RANK_MAX:
            got = "shape, strides and block_shape of rank {}, {} and {}".format(*ranks)
            raise ArgumentError(f"expected one rank of 1 to {_core.RANK_MAX}", got=got, where="TensorDescriptor")
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
            tensor: an object with ``shape`` and ``stride()``, such as torch's.
            block_shape: elements of a block in each dimension, or None.
            padding: ``zero`` or ``nan``.
            round_f32_to_tf32: whether reads are rounded.
        """
        return cls(tensor, tensor.shape, tensor.stride(), block_shape, padding, round_f32_to_tf32)

    def __repr__(self) -> str:
        return (
            f"TensorDescriptor({type(self.base).__name__}, shape={self.shape}, strides={self.strides}, "
            f"block_shape={self.block_shape}, padding={self.padding!r})"
        )
