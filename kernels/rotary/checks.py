"""Operands of rotary position embedding, and their validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from nojit.kernels.calls.arguments import (
    COUNTED,
    check_apart,
    check_dtype,
    check_like,
    check_like_device,
    check_shape,
    check_strided,
    check_tensor,
    check_unrepeated,
    refuse_type,
    refuse_value,
)
from nojit.kernels.calls.strides import merged_stride
from torch import Tensor

__all__ = ["WIDEST", "Operands", "Tensors", "check_apart_all", "check_operands", "check_out", "check_written"]

Tensors = tuple[Any, Any, Any, Any, Any, Any, Any, Any, Any, Any, Any]
"""Tensors of a call in the order of the fields of `Operands`; None if absent."""
WIDEST: Final = 512
"""The largest number of rotated columns: half of them must fit a tile."""


@dataclass(frozen=True, slots=True)
class Operands:
    """Tensors of a call, None if absent, and its numbers."""

    query: Tensor
    key: Tensor | None
    value: Tensor | None
    query_weight: Tensor | None
    key_weight: Tensor | None
    cos: Tensor
    sin: Tensor
    positions: Tensor | None
    slot_mapping: Tensor | None
    key_cache: Tensor | None
    value_cache: Tensor | None
    eps: float
    interleaved: bool
    conjugate: bool = False
    """Whether to rotate back."""

    @property
    def tensors(self) -> Tensors:
        """The tensors in order."""
        return (
            self.query, self.key, self.value, self.query_weight, self.key_weight, self.cos, self.sin, self.positions,
            self.slot_mapping, self.key_cache, self.value_cache,
        )  # fmt: skip

    @property
    def named(self) -> dict[str, Tensor]:
        """The tensors that the call has, by argument name."""
        return {name: value for name, value in zip(self.__slots__, self.tensors, strict=False) if value is not None}


def check_operands(operands: Operands, first: str = "query") -> None:
    """Require operands of matching shapes, dtypes and devices.

    Args:
        operands: the operands.
        first: the caller's name of the query.

    Raises:
        ArgumentError: a wrong type, dtype or device.
        ValueError: a wrong shape or size.
    """
    query = operands.query
    check_tensor(first, query)
    check_dtype(first, query)
    if query.dim() < 3:
        refuse_value(first, "at least 3 dimensions [..., tokens, heads, head_dim]", f"shape {tuple(query.shape)}")
    heads = query.shape[-2]
    for name, value in (("key", operands.key), ("value", operands.value)):
        if value is not None:
            check_like(name, value, first, query)
            if value.dim() != query.dim():
                refuse_value(name, f"{query.dim()} dimensions as {first} has", value.dim())
            width = query.shape[-1] if name == "key" else value.shape[-1]
            known = value.shape[-2] if name == "key" or operands.key is None else operands.key.shape[-2]
            check_shape(name, value, (*query.shape[:-2], known, width), "..., tokens, heads, head_dim")
            heads += value.shape[-2]
    if heads * query.shape[:-2].numel() > COUNTED:
        refuse_value(first, f"at most {COUNTED} heads of all tokens", heads * query.shape[:-2].numel())
    _check_tables(operands, first)
    _check_weights(operands, first)
    _check_ints("positions", operands.positions, query, first, (torch.int32, torch.int64))
    if operands.key_cache is not None:
        _check_caches(operands)


def _check_tables(operands: Operands, first: str) -> None:
    """Require cos and sin [max_position, rotary_dim / 2], in the query's dtype or fp32."""
    query, cos, sin = operands.query, operands.cos, operands.sin
    check_strided("cos", cos)
    check_dtype("cos", cos, tuple(dict.fromkeys((query.dtype, torch.float32))))
    check_like_device("cos", cos, first, query)
    check_like("sin", sin, "cos", cos)
    if cos.dim() != 2:
        refuse_value("cos", "2 dimensions [max_position, rotary_dim / 2]", f"shape {tuple(cos.shape)}")
    check_shape("sin", sin, cos.shape, "max_position, rotary_dim / 2")
    most = min(query.shape[-1], WIDEST)
    if not 2 <= 2 * cos.shape[1] <= most:
        expected = (
            f"1 to {most // 2} columns, as at most {most} of the {query.shape[-1]} columns of {first} are rotated"
        )
        refuse_value("cos", expected, cos.shape[1])
    if operands.positions is None and query.shape[-3] > cos.shape[0]:
        refuse_value("cos", f"at least {query.shape[-3]} rows, one for each token", cos.shape[0])
    # the call would drop their gradients silently
    for name, table in (("cos", cos), ("sin", sin)):
        if torch.is_grad_enabled() and table.requires_grad:
            refuse_value(name, "a tensor that requires no grad", "one that does")


def _check_weights(operands: Operands, first: str) -> None:
    """Require no weights, or one for each tensor that is rotated."""
    if operands.query_weight is None:
        if operands.key_weight is not None:
            refuse_value("query_weight", "a weight, as key_weight is given", "None")
        return
    if operands.key is not None and operands.key_weight is None:
        refuse_value("key_weight", "a weight, as query_weight is given", "None")
    for name, weight in (("query_weight", operands.query_weight), ("key_weight", operands.key_weight)):
        if weight is not None:
            check_like(name, weight, first, operands.query)
            check_shape(name, weight, operands.query.shape[-1:], "head_dim")


def _check_ints(name: str, value: Tensor | None, query: Tensor, first: str, dtypes: tuple[torch.dtype, ...]) -> None:
    """Require no tensor, or integers for each token; positions may be shared by all sequences.

    Args:
        name: the argument's name.
        value: the tensor or None.
        query: the query.
        first: the caller's name of the query.
        dtypes: the integers that are allowed.
    """
    if value is None:
        return
    check_strided(name, value)
    check_dtype(name, value, dtypes)
    check_like_device(name, value, first, query)
    tokens = tuple(query.shape[:-2])
    if name != "positions" or tuple(value.shape) != tokens[-1:]:
        check_shape(name, value, tokens, "..., tokens")


def _check_caches(operands: Operands) -> None:
    """Require caches [pages, heads, page size, dim] of the query's dtype."""
    assert operands.key is not None  # noqa: S101 - the operator requires them
    assert operands.value is not None  # noqa: S101 - as above
    assert operands.key_cache is not None  # noqa: S101 - as above
    assert operands.value_cache is not None  # noqa: S101 - as above
    _check_ints("slot_mapping", operands.slot_mapping, operands.query, "query", (torch.int64,))
    sizes = (0, 0)
    for name, cache, value in (
        ("key_cache", operands.key_cache, operands.key),
        ("value_cache", operands.value_cache, operands.value),
    ):
        check_like(name, cache, "query", operands.query)
        if cache.dim() != 4:
            refuse_value(name, "4 dimensions [pages, heads, page size, dim]", f"shape {tuple(cache.shape)}")
        if name == "key_cache":
            sizes = cache.shape[0], cache.shape[2]
        shape = (sizes[0], value.shape[-2], sizes[1], value.shape[-1])
        check_shape(name, cache, shape, "pages, heads, page size, dim")
        check_written(name, cache)
    if sizes[1] < 1 or sizes[1] & (sizes[1] - 1):
        refuse_value("key_cache", "pages of a power of two of rows", sizes[1])


def check_written(name: str, value: Tensor) -> None:
    """Require that a kernel can write to a tensor: rows are contiguous, and no element is repeated.

    `name`: the argument's name, for the error.
    """
    check_unrepeated(name, value)
    if value.shape[-1] > 1 and value.stride(-1) != 1:
        refuse_value(name, "a last stride of 1", value.stride(-1))
    if name not in {"key_cache", "value_cache"} and merged_stride(value.shape[:-3], value.stride()[:-3]) is None:
        refuse_value(name, "dimensions before the tokens at even distances", f"strides {value.stride()}")


def check_out(out: Tensor, x: Tensor) -> None:
    """Require an output of the shape, dtype and device of `x` that overlaps it nowhere, unless it is `x` itself."""
    check_strided("out", out)
    if out.dtype != x.dtype:
        refuse_type("out", f"{x.dtype} as x has", out.dtype)
    check_like_device("out", out, "x", x)
    check_shape("out", out, x.shape, "as x")
    check_written("out", out)


def check_apart_all(outs: dict[str, Tensor], operands: Operands) -> None:
    """Require that outputs overlap neither one another nor operands; an output may be the query or the key itself.

    Args:
        outs: the outputs by argument name.
        operands: the operands.
    """
    named = operands.named
    for place, (name, out) in enumerate(outs.items()):
        others = dict(list(outs.items())[:place]) | {key: value for key, value in named.items() if key not in outs}
        if name not in named and _is_same(out, operands.query):
            del others["query"]
        for other, value in others.items():
            if value.dtype == out.dtype:
                check_apart(name, out, other, value)


def _is_same(one: Tensor, other: Tensor) -> bool:
    return bool(one.data_ptr() == other.data_ptr() and one.stride() == other.stride())
