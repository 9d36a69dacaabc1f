"""Two products in one launch, with a function between them: ``b2b_gemm``, of fp16, bf16 or fp32 and of any strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nojit.kernels.b2b_gemm.functions import CustomActivation
    from nojit.kernels.b2b_gemm.op import b2b_gemm

__all__ = ["CustomActivation", "b2b_gemm"]


def __getattr__(name: str) -> object:
    """Import the operator, and torch with it, when it is asked for."""
    if name == "b2b_gemm":
        from nojit.kernels.b2b_gemm import op  # noqa: PLC0415 - importing the package must stay cheap

        return op.b2b_gemm
    if name == "CustomActivation":
        from nojit.kernels.b2b_gemm import functions  # noqa: PLC0415 - likewise

        return functions.CustomActivation
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
