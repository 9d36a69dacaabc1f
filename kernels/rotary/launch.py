"""Launches of validated rotary embeddings: allocation of results, strides, choice of the kernel."""

from __future__ import annotations

from nojit.kernels.calls.memos import DIRECT, Caller, new_contiguous
from nojit.kernels.calls.strides import named
from nojit.kernels.rotary.checks import Operands
from nojit.kernels.rotary.launch_flat import VECTOR, Pair, launch_flat
from nojit.kernels.rotary.rows import NONE, Rows, cached, dense, row_stride, rows_of, strides_of, tokens_of
from torch import Tensor

__all__ = ["rotate"]


def rotate(
    operands: Operands,
    query_out: Tensor | None = None,
    key_out: Tensor | None = None,
    *,
    makes_key: bool = True,
    caller: Caller = DIRECT,
) -> tuple[Tensor, Tensor | None]:
    """Return the rotated query, and the rotated key if there is a key; operands are already validated.

    Args:
        operands: the operands.
        query_out: where to write the query; None for a new tensor.
        key_out: where to write the key; None for a new tensor.
        makes_key: whether the key is a result, and not only written to the cache.
        caller: allocates and launches, or also records both for replays.
    """
    query, key = operands.query, operands.key
    if query_out is None:
        query_out = new_contiguous(caller, query, query.shape)
    if key_out is None and key is not None and makes_key:
        key_out = new_contiguous(caller, key, key.shape)
    if query.shape[:-2].numel() and (query.shape[-2] or (key is not None and key.shape[-2])):
        _launch(operands, query_out, key_out, caller)
    return query_out, key_out


def _launch(operands: Operands, query_out: Tensor, key_out: Tensor | None, caller: Caller) -> None:
    query = operands.query
    tokens, length, head_dim = query.shape[:-2].numel(), query.shape[-3], query.shape[-1]
    absent = Rows(query, NONE)
    q = rows_of(query, caller)
    k = absent if operands.key is None else rows_of(operands.key, caller)
    v = absent if operands.value is None else rows_of(operands.value, caller)
    q_out, k_out = (absent if out is None else Rows(out, strides_of(out)) for out in (query_out, key_out))
    k_cache, v_cache = (
        absent if cache is None else cached(cache) for cache in (operands.key_cache, operands.value_cache)
    )
    cos, sin = (dense(table, caller) for table in (operands.cos, operands.sin))
    q_weight, k_weight = (
        query if weight is None else dense(weight, caller) for weight in (operands.query_weight, operands.key_weight)
    )
    positions, position_strides = tokens_of(operands.positions, query, caller)
    slots, slot_strides = tokens_of(operands.slot_mapping, query, caller)

    q_heads = query.shape[-2]
    k_heads = 0 if operands.key is None else operands.key.shape[-2]
    v_heads = 0 if operands.value is None else operands.value.shape[-2]
    v_dim = 0 if operands.value is None else operands.value.shape[-1]
    # of the next power of two
    q_bits, k_bits = (max(heads - 1, 0).bit_length() for heads in (q_heads, k_heads))
    # partial rotary: the columns past `rotated` pass through
    half = operands.cos.shape[1]
    rotated = 2 * half
    has_norm = operands.query_weight is not None
    q_end = _end_of(operands.query, query_out, rotated, has_norm, caller)
    may_be_in_place = operands.key is not None and key_out is not None and operands.key_cache is None
    k_end = _end_of(operands.key, key_out, rotated, has_norm, caller) if may_be_in_place else head_dim
    page_bits = 0 if operands.key_cache is None else operands.key_cache.shape[2].bit_length() - 1
    columns = {
        "head_dim": head_dim,
        "half": half,
        "v_half": min(half, v_dim // 2),
        "q_end": q_end,
        "k_end": k_end,
        "v_end": v_dim,
    }
    strides = {
        **named("stride_q", "bth", q.strides),
        **named("stride_k", "bth", k.strides),
        **named("stride_v", "bth", v.strides),
        **named("stride_qo", "bth", q_out.strides),
        **named("stride_ko", "bth", k_out.strides),
        **named("stride_kc", "pth", k_cache.strides),
        **named("stride_vc", "pth", v_cache.strides),
        "stride_cos": row_stride(cos),
        "stride_sin": row_stride(sin),
    }
    eighths = not any(number % VECTOR for number in (*strides.values(), *columns.values()))
    sign = -1.0 if operands.conjugate else 1.0
    is_pair = operands.value is None and not has_norm and not operands.interleaved
    if is_pair and eighths and q_end == rotated and (k_heads == 0 or k_end == rotated):
        given = (positions, position_strides, operands.positions is not None, k_heads, sign)
        if launch_flat(Pair(q, k, q_out, k_out, cos, sin, *given), caller):
            return
    caller.launch(
        "rotary",
        q_ptr=q.value,
        k_ptr=k.value,
        v_ptr=v.value,
        q_out_ptr=q_out.value,
        k_out_ptr=k_out.value,
        k_cache_ptr=k_cache.value,
        v_cache_ptr=v_cache.value,
        cos_ptr=cos,
        sin_ptr=sin,
        q_weight_ptr=q_weight,
        k_weight_ptr=k_weight,
        positions_ptr=positions,
        slots_ptr=slots,
        tokens=tokens,
        length=length,
        q_heads=q_heads,
        k_heads=k_heads,
        v_heads=v_heads,
        q_span=1 << q_bits,
        k_span=1 << k_bits,
        q_bits=q_bits,
        k_bits=k_bits,
        **columns,
        has_positions=int(operands.positions is not None),
        has_key_out=int(key_out is not None),
        has_cache=int(operands.key_cache is not None),
        page_bits=page_bits,
        eighths=int(eighths),
        eps=operands.eps,
        sign=sign,
        **strides,
        **named("stride_p", "bt", position_strides),
        **named("stride_s", "bt", slot_strides),
        INTERLEAVED=operands.interleaved,
        NORM=has_norm,
    )


def _end_of(value: Tensor, out: Tensor, rotated: int, has_norm: bool, caller: Caller) -> int:
    """Return the number of columns to write: not those that an operator in place would copy onto themselves.

    Args:
        value: the operand.
        out: its result.
        rotated: number of rotated columns.
        has_norm: whether all columns are normalized.
        caller: allocates and launches, or also records both for replays.
    """
    # a replay may have another output of the same strides, unless the output is the operand itself
    is_view = caller is DIRECT and out.data_ptr() == value.data_ptr() and out.stride() == value.stride()
    is_same = out is value or is_view
    return rotated if is_same and not has_norm else value.shape[-1]
