"""The operators' families, and calls that together reach every kernel of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from tests.gpu import (
    b2b_gemm_calls,
    calls,
    conv_calls,
    flex_calls,
    flex_decoding_calls,
    gemm_calls,
    matmul_calls,
    mixed_mm_calls,
    norm_calls,
    scaled_mm_calls,
)
from tests.gpu.call import Call

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True)
class Family:
    """Operators that are tested together."""

    own: tuple[str, ...]
    """Manifests whose every kernel the calls must reach."""
    calls: Callable[[], Iterator[Call]]
    borrowed: tuple[str, ...] = ()
    """Manifests of other families, of which the operators use kernels."""


FAMILIES: Final[Mapping[str, Family]] = {
    "attention": Family(("flash_attention",), lambda: chain(calls.attention_calls(), calls.attention_gradient_calls())),
    "b2b_gemm": Family(("b2b_gemm",), b2b_gemm_calls.b2b_calls),
    "block_sparse": Family(
        ("block_sparse",),
        lambda: chain(calls.sparse_calls(), matmul_calls.matmul_calls(), matmul_calls.gradient_calls()),
    ),
    "conv": Family(("conv",), conv_calls.conv_calls, borrowed=("bmm",)),
    "flex": Family(
        ("flex",),
        lambda: chain(flex_calls.flex_calls(), flex_calls.flex_gradient_calls(), flex_calls.flex_captured_calls()),
        borrowed=("flash_attention",),
    ),
    "flex_decoding": Family(("flex_decoding",), flex_decoding_calls.flex_decoding_calls),
    "gemm": Family(("bmm", "mm_plus_mm"), gemm_calls.gemm_calls),
    "mixed_mm": Family(("mixed_mm",), mixed_mm_calls.mixed_mm_calls, borrowed=("bmm",)),
    "norm": Family(("norm",), norm_calls.norm_calls),
    "pointwise": Family(("pointwise",), lambda: chain(calls.pointwise_calls(), calls.generated_calls())),
    "scaled_mm": Family(("scaled_mm",), scaled_mm_calls.scaled_calls),
}
