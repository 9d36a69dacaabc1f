"""The signature that all launches of matrix products share, for calls that are already validated."""

# ruff: noqa: PLR0917 - a product has as many operands

from __future__ import annotations

from typing import Protocol

from nojit.kernels.calls.memos import DIRECT, Caller
from torch import Tensor

__all__ = ["Product"]


class Product(Protocol):
    """A validated matrix product that is ready to launch."""

    def __call__(
        self,
        a: Tensor,
        b: Tensor,
        source: Tensor | None,
        out: Tensor | None,
        scales: tuple[int, float, float],
        caller: Caller = DIRECT,
    ) -> Tensor:
        """Launch the product; return the result, a new tensor unless `out` is given.

        Args:
            a: left operand.
            b: right operand.
            source: the tensor to add, or None.
            out: where to write the result, or None.
            scales: the activation's number, alpha and beta.
            caller: launches the kernels.
        """
