"""The operators' families, and calls that together reach every kernel of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from tests.gpu import (
    b2b_gemm_calls,
    calls,
    conv_calls,
    flex_calls,
    flex_decoding_calls,
    gated_mm_calls,
    gemm_calls,
    grouped_mm_calls,
    matmul_calls,
    mixed_mm_calls,
    norm_calls,
    rotary_calls,
    scaled_grouped_mm_calls,
    scaled_mm_calls,
)
from tests.gpu.call import Call
from tests.gpu.steering import reachable

__all__ = ["FAMILIES", "Family"]


def convolutions_reach(table: Any, row: int) -> bool:
    """Know the variants that calls can ask for: channels by 16 fill every step of 16."""
    values, hints = table.constexprs(row), table.hint_sets[table.columns["hints"][row]]
    return not (values.get("BLOCK_K") == 16 and values.get("WHOLE") is False and ("c_len", 16) in hints)


def attention_reaches(table: Any, row: int) -> bool:
    """Know the variants that calls can ask for: a head of less than 16 elements is no multiple of 16."""
    values, hints = table.constexprs(row), table.hint_sets[table.columns["hints"][row]]
    return not (values.get("BLOCK_D") == 16 and values.get("EVEN_D") is False and ("head_dim", 16) in hints)


@dataclass(frozen=True)
class Family:
    """Operators that are tested together."""

    own: tuple[str, ...]
    """Manifests whose every kernel the calls must reach."""
    calls: Callable[[], Iterator[Call]]
    borrowed: tuple[str, ...] = ()
    """Manifests of other families, of which the operators use kernels."""
    reaches: Callable[[Any, int], bool] = reachable
    """Whether calls can ask for a row of a kernel's table at all."""
    in_any_order: tuple[str, ...] = ()
    """Kernels that add up by atomics: no two launches give the same bits."""
    shares: int = 1
    """In how many parts several processes make its calls."""


FAMILIES: Final[Mapping[str, Family]] = {
    "attention": Family(
        ("flash_attention",),
        lambda: chain(calls.attention_calls(), calls.attention_gradient_calls()),
        reaches=attention_reaches,
        shares=5,
    ),
    "b2b_gemm": Family(("b2b_gemm",), b2b_gemm_calls.b2b_calls, shares=6),
    "block_sparse": Family(
        ("block_sparse",),
        lambda: chain(calls.sparse_calls(), matmul_calls.matmul_calls(), matmul_calls.gradient_calls()),
        shares=4,
    ),
    "conv": Family(("conv",), conv_calls.conv_calls, borrowed=("bmm",), reaches=convolutions_reach),
    "flex": Family(
        ("flex",),
        lambda: chain(flex_calls.flex_calls(), flex_calls.flex_gradient_calls(), flex_calls.flex_captured_calls()),
        borrowed=("flash_attention",),
        in_any_order=("flex_attention_bwd_captured",),
        shares=12,
    ),
    "flex_decoding": Family(("flex_decoding",), flex_decoding_calls.flex_decoding_calls, shares=3),
    "gated_mm": Family(("gated_mm",), gated_mm_calls.gated_calls, borrowed=("bmm", "pointwise")),
    "gemm": Family(("bmm", "mm_plus_mm"), gemm_calls.gemm_calls, shares=4),
    "grouped_mm": Family(("grouped_mm",), grouped_mm_calls.grouped_calls),
    "mixed_mm": Family(("mixed_mm",), mixed_mm_calls.mixed_mm_calls, borrowed=("bmm",)),
    "norm": Family(("norm",), norm_calls.norm_calls),
    "pointwise": Family(
        ("pointwise",),
        lambda: chain(calls.pointwise_calls(), calls.generated_calls(), calls.huge_pointwise_calls()),
    ),
    "rotary": Family(("rotary",), rotary_calls.rotary_calls, borrowed=("norm",)),
    "scaled_grouped_mm": Family(("scaled_grouped_mm",), scaled_grouped_mm_calls.scaled_grouped_calls),
    "scaled_mm": Family(("scaled_mm",), scaled_mm_calls.scaled_calls, shares=3),
}
