"""Triton kernel of rotary position embedding, with optional norms of heads and writes to a paged cache.

    out[i] = x[i] * cos - x[j] * sin,  out[j] = x[j] * cos + x[i] * sin       for the pairs (i, j) of a head
    x = x * (mean(x**2) + eps) ** -0.5 * weight                               before, if `NORM`

Pair i is (i, i + half), or (2 * i, 2 * i + 1) if `INTERLEAVED` (Su et al. 2021, https://arxiv.org/abs/2104.09864). A row
is a head of a token. A program takes `ROWS` rows of query, key or value: heads of one token, or of several tokens if
there are fewer heads.
"""

import triton
import triton.language as tl
from nojit.kernels.kernel_functions import divide


@triton.constexpr_function
def _log2(number):
    return number.bit_length() - 1


@triton.jit
def _runs(count, bits):
    """Return the number of runs of ``1 << bits`` that hold `count` things."""
    return (count + (1 << bits) - 1) >> bits


@triton.jit
def _load_pairs(ptrs, inside, half, INTERLEAVED: tl.constexpr, BLOCK: tl.constexpr):
    """Return the first and the second elements of pairs as fp32 [rows, BLOCK]; `ptrs` and `inside` are [rows, 1]."""
    if INTERLEAVED:
        cols = tl.arange(0, 2 * BLOCK)[None, :]
        whole = tl.load(ptrs + cols, mask=inside & (cols < 2 * half), other=0.0).to(tl.float32)
        first, second = tl.split(tl.reshape(whole, (ptrs.shape[0], BLOCK, 2)))
    else:
        cols = tl.arange(0, BLOCK)[None, :]
        mask = inside & (cols < half)
        first = tl.load(ptrs + cols, mask=mask, other=0.0).to(tl.float32)
        second = tl.load(ptrs + half + cols, mask=mask, other=0.0).to(tl.float32)
    return first, second


@triton.jit
def _store_pairs(ptrs, inside, half, first, second, INTERLEAVED: tl.constexpr, BLOCK: tl.constexpr):
    """Store what `_load_pairs` loaded, rounded to the dtype of the pointers."""
    dtype: tl.constexpr = ptrs.dtype.element_ty
    if INTERLEAVED:
        cols = tl.arange(0, 2 * BLOCK)[None, :]
        whole = tl.reshape(tl.join(first, second), (ptrs.shape[0], 2 * BLOCK))
        tl.store(ptrs + cols, whole.to(dtype), mask=inside & (cols < 2 * half))
    else:
        cols = tl.arange(0, BLOCK)[None, :]
        mask = inside & (cols < half)
        tl.store(ptrs + cols, first.to(dtype), mask=mask)
        tl.store(ptrs + half + cols, second.to(dtype), mask=mask)


@triton.jit
def _copy_rest(ptrs, x_ptrs, weight_ptr, scale, inside, is_value, start, end, NORM: tl.constexpr, BLOCK: tl.constexpr):
    """Write the columns from `start` to `end` of x, with `NORM` times `scale` [rows, 1] and their weights, except of values."""
    lanes = tl.arange(0, BLOCK)[None, :]
    weighed = tl.where(is_value, 0, end)
    for first in range(start, end, BLOCK):
        cols = first + lanes
        mask = inside & (cols < end)
        rest = tl.load(x_ptrs + cols, mask=mask, other=0.0)
        if NORM:
            weights = weight_ptr + tl.zeros((ptrs.shape[0], 1), tl.int32) + cols
            weight = tl.load(weights, mask=inside & (cols < weighed), other=0.0).to(tl.float32)
            normal = (rest.to(tl.float32) * scale * weight).to(rest.dtype)
            rest = tl.where(is_value, rest, normal)
        tl.store(ptrs + cols, rest, mask=mask)


@triton.jit
def _pick(is_query, is_value, query, key, value):
    """Return the argument for the tensor to which the program's rows belong."""
    return tl.where(is_query, query, tl.where(is_value, value, key))


@triton.jit
def _pick_strides(is_query, is_value, query, key, value):
    """Return the strides for the tensor to which the program's rows belong."""
    # a choice between offsets would hide from the compiler that 8 divides them
    return (
        _pick(is_query, is_value, query[0], key[0], value[0]),
        _pick(is_query, is_value, query[1], key[1], value[1]),
        _pick(is_query, is_value, query[2], key[2], value[2]),
    )


@triton.jit
def _offset(lead, place, head, strides):
    """Return the offset of rows in elements, int64."""
    return lead.to(tl.int64) * strides[0] + place.to(tl.int64) * strides[1] + head.to(tl.int64) * strides[2]


@triton.jit
def _eighths(strides):
    """Return strides as multiples of 8, which they are."""
    return strides[0] // 8 * 8, strides[1] // 8 * 8, strides[2] // 8 * 8


@triton.jit
def rotary_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    q_out_ptr,
    k_out_ptr,
    k_cache_ptr,
    v_cache_ptr,
    cos_ptr,
    sin_ptr,
    q_weight_ptr,
    k_weight_ptr,
    positions_ptr,
    slots_ptr,
    tokens,
    length,
    q_heads,
    k_heads,
    v_heads,  # noqa: ARG001 - the manifest's grid reads it
    q_span,  # noqa: ARG001 - as above
    k_span,  # noqa: ARG001 - as above
    q_bits,
    k_bits,
    head_dim,
    half,
    v_half,
    q_end,
    k_end,
    v_end,
    has_positions,
    has_key_out,
    has_cache,
    page_bits,
    eighths,  # noqa: ARG001 - the manifest's configs read it
    eps,
    sign,
    stride_qb,
    stride_qt,
    stride_qh,
    stride_kb,
    stride_kt,
    stride_kh,
    stride_vb,
    stride_vt,
    stride_vh,
    stride_qob,
    stride_qot,
    stride_qoh,
    stride_kob,
    stride_kot,
    stride_koh,
    stride_kcp,
    stride_kct,
    stride_kch,
    stride_vcp,
    stride_vct,
    stride_vch,
    stride_cos,
    stride_sin,
    stride_pb,
    stride_pt,
    stride_sb,
    stride_st,
    INTERLEAVED: tl.constexpr,
    NORM: tl.constexpr,
    EIGHTHS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rotate query and key, and copy value; the operands are [batch, length, heads, dim] with any strides but a last one of 1.

    `tokens` is batch * length. The first ``2 * half`` columns of query and key are rotated by row ``positions[token]`` of
    cos and sin, or by row ``token % length`` without `has_positions`; `sign` is 1, or -1 to rotate back. All other
    columns up to `q_end` and `k_end` are copied. The rotated query goes to q_out. With `has_key_out`, the rotated key
    goes to k_out. With `has_cache`, key and value also go to row ``slot % page size`` of page ``slot // page size`` of
    the caches, unless the slot is negative; pages have ``1 << page_bits`` rows.

    Absent tensors have no heads, and any pointer. `q_span` and `k_span` are the numbers of heads, rounded up to a power
    of two, and `q_bits` and `k_bits` their logarithms. `EIGHTHS` states that 8 divides all strides, `half`, `v_half`, `head_dim` and the ends, so that 16 bytes are
    loaded at a time. Grid: the programs of query, then of key, then of value.
    """
    q_strides = (stride_qb, stride_qt, stride_qh)
    k_strides = (stride_kb, stride_kt, stride_kh)
    v_strides = (stride_vb, stride_vt, stride_vh)
    q_out_strides = (stride_qob, stride_qot, stride_qoh)
    k_out_strides = (stride_kob, stride_kot, stride_koh)
    k_cache_strides = (stride_kcp, stride_kct, stride_kch)
    v_cache_strides = (stride_vcp, stride_vct, stride_vch)
    if EIGHTHS:
        q_strides, k_strides, v_strides = _eighths(q_strides), _eighths(k_strides), _eighths(v_strides)
        q_out_strides, k_out_strides = _eighths(q_out_strides), _eighths(k_out_strides)
        k_cache_strides, v_cache_strides = _eighths(k_cache_strides), _eighths(v_cache_strides)
        stride_cos, stride_sin = stride_cos // 8 * 8, stride_sin // 8 * 8
        half, v_half, head_dim = half // 8 * 8, v_half // 8 * 8, head_dim // 8 * 8
        q_end, k_end, v_end = q_end // 8 * 8, k_end // 8 * 8, v_end // 8 * 8

    program = tl.program_id(0)
    # powers of two, so that shifts take the place of divisions
    q_tile, k_tile = tl.minimum(q_bits, _log2(ROWS)), tl.minimum(k_bits, _log2(ROWS))
    q_programs = _runs(tokens, _log2(ROWS) - q_tile) * _runs(q_heads, q_tile)
    k_programs = _runs(tokens, _log2(ROWS) - k_tile) * _runs(k_heads, k_tile)
    is_query, is_value = program < q_programs, program >= q_programs + k_programs
    index = program - _pick(is_query, is_value, 0, q_programs, q_programs + k_programs)
    heads, tile = tl.where(is_query, q_heads, k_heads), tl.where(is_query, q_tile, k_tile)
    run, group = divide(index, _runs(heads, tile))
    rows = tl.arange(0, ROWS)
    token = (run << (_log2(ROWS) - tile)) + (rows >> tile)
    head = ((group << tile) + (rows & ((1 << tile) - 1)))[:, None]
    inside = (token < tokens)[:, None] & (head < heads)
    sequence, place = divide(token, length)
    sequence, place = sequence[:, None], place[:, None]
    wide_sequence, wide_place = sequence.to(tl.int64), place.to(tl.int64)

    position_ptrs = positions_ptr + wide_sequence * stride_pb + wide_place * stride_pt
    position = tl.load(position_ptrs, mask=inside & (head < heads * has_positions), other=0)
    position = tl.where(has_positions != 0, position, wide_place)

    own_half = tl.where(is_value, v_half, half)
    x_strides = _pick_strides(is_query, is_value, q_strides, k_strides, v_strides)
    x_ptrs = _pick(is_query, is_value, q_ptr, k_ptr, v_ptr) + _offset(sequence, place, head, x_strides)
    first, second = _load_pairs(x_ptrs, inside, own_half, INTERLEAVED, BLOCK)

    lanes = tl.arange(0, BLOCK)[None, :]
    rotates = inside & (lanes < tl.where(is_value, 0, half))
    cos = tl.load(cos_ptr + position * stride_cos + lanes, mask=rotates, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + position * stride_sin + lanes, mask=rotates, other=0.0).to(tl.float32) * sign

    scale = tl.full((ROWS, 1), 1.0, tl.float32)
    weight_ptr = tl.where(is_query, q_weight_ptr, k_weight_ptr)
    if NORM:
        squares = tl.sum(first * first + second * second, 1)
        for start in range(2 * half, tl.where(is_value, 0, head_dim), BLOCK):
            cols = start + lanes
            rest = tl.load(x_ptrs + cols, mask=inside & (cols < head_dim), other=0.0).to(tl.float32)
            squares += tl.sum(rest * rest, 1)
        scale = tl.rsqrt(squares / head_dim + eps)[:, None]
        # a tile like that of x, so that each thread has the weights of its columns
        own, other = _load_pairs(weight_ptr + tl.zeros((ROWS, 1), tl.int32), inside, half, INTERLEAVED, BLOCK)
        # values are copied as they are
        first = tl.where(is_value, first, first * scale * own)
        second = tl.where(is_value, second, second * scale * other)
    # a product with 0 would turn infinite values into NaN
    turned = tl.where(is_value, first, first * cos - second * sin)
    second = tl.where(is_value, second, second * cos + first * sin)

    end = _pick(is_query, is_value, q_end, k_end, v_end)
    if is_query | ((has_key_out != 0) & (program < q_programs + k_programs)):
        strides = _pick_strides(is_query, False, q_out_strides, k_out_strides, k_out_strides)
        ptrs = tl.where(is_query, q_out_ptr, k_out_ptr) + _offset(sequence, place, head, strides)
        _store_pairs(ptrs, inside, own_half, turned, second, INTERLEAVED, BLOCK)
        _copy_rest(ptrs, x_ptrs, weight_ptr, scale, inside, is_value, 2 * own_half, end, NORM, BLOCK)
    if (has_cache != 0) & (program >= q_programs):
        slot_ptrs = slots_ptr + wide_sequence * stride_sb + wide_place * stride_st
        slot = tl.load(slot_ptrs, mask=inside, other=-1)
        fills = inside & (slot >= 0)
        page, entry = slot >> page_bits, slot & ((1 << page_bits) - 1)
        strides = _pick_strides(False, is_value, k_cache_strides, k_cache_strides, v_cache_strides)
        ptrs = tl.where(is_value, v_cache_ptr, k_cache_ptr) + _offset(page, entry, head, strides)
        _store_pairs(ptrs, fills, own_half, turned, second, INTERLEAVED, BLOCK)
        _copy_rest(ptrs, x_ptrs, weight_ptr, scale, fills, is_value, 2 * own_half, end, NORM, BLOCK)
