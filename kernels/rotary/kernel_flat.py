"""Triton kernel of rotary position embedding without norms and caches, for operands whose halves are whole vectors.

The kernel numbers the pairs of vectors of all tokens and heads, and gives each thread as many: no thread is idle if the heads or
the vectors of a half are no power of two. `nojit.kernels.rotary.kernel` describes the rotation.
"""

import triton
import triton.language as tl
from nojit.kernels.kernel_functions import divide

VECTOR = tl.constexpr(8)
"""Elements of a vector: 16 bytes of 16-bit numbers."""


@triton.jit
def _vectors(base_ptr, numbers):
    """Return pointers [n, `VECTOR`] to the elements of vectors; 16 divides `base_ptr`."""
    ptrs = base_ptr + (numbers[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :])
    return tl.multiple_of(ptrs, (16, 16))


@triton.jit
def rotary_flat_kernel(
    q_ptr,
    k_ptr,
    q_out_ptr,
    k_out_ptr,
    cos_ptr,
    sin_ptr,
    positions_ptr,
    tokens,
    length,
    q_heads,
    k_heads,
    vectors,
    has_positions,
    sign,
    stride_qt,
    stride_qh,
    stride_kt,
    stride_kh,
    stride_qot,
    stride_qoh,
    stride_kot,
    stride_koh,
    stride_cos,
    stride_sin,
    stride_p,
    VECTORS: tl.constexpr,
):
    """Rotate query and key, [tokens, heads, 2, vectors, 8].

    All strides but that of positions count vectors. 16 divides the addresses of all tensors but the positions. Rows of cos and sin are ``positions[token]``, or ``token % length`` without
    `has_positions`; `sign` is 1, or -1 to rotate back. Grid: cdiv(tokens * heads * vectors, VECTORS) for query, then for key.
    """
    program = tl.program_id(0)
    q_programs = tl.cdiv(tokens * q_heads * vectors, VECTORS)
    is_query = program < q_programs
    index = (program - tl.where(is_query, 0, q_programs)) * VECTORS + tl.arange(0, VECTORS)
    row, vector = divide(index, vectors)
    token, head = divide(row, tl.where(is_query, q_heads, k_heads))
    inside = token < tokens
    wide_token, wide_head = token.to(tl.int64), head.to(tl.int64)
    if has_positions != 0:
        position = tl.load(positions_ptr + wide_token * stride_p, mask=inside, other=0)
    else:
        _, place = divide(token, length)
        position = place.to(tl.int64)

    half = vectors * VECTOR
    stride_t, stride_h = tl.where(is_query, stride_qt, stride_kt), tl.where(is_query, stride_qh, stride_kh)
    x_ptrs = _vectors(tl.where(is_query, q_ptr, k_ptr), wide_token * stride_t + wide_head * stride_h + vector)
    mask = inside[:, None]
    first = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x_ptrs + half, mask=mask, other=0.0).to(tl.float32)
    cos = tl.load(_vectors(cos_ptr, position * stride_cos + vector), mask=mask, other=0.0).to(tl.float32)
    sin = tl.load(_vectors(sin_ptr, position * stride_sin + vector), mask=mask, other=0.0).to(tl.float32) * sign
    stride_t, stride_h = tl.where(is_query, stride_qot, stride_kot), tl.where(is_query, stride_qoh, stride_koh)
    out_ptrs = _vectors(tl.where(is_query, q_out_ptr, k_out_ptr), wide_token * stride_t + wide_head * stride_h + vector)
    dtype: tl.constexpr = q_ptr.dtype.element_ty
    tl.store(out_ptrs, (first * cos - second * sin).to(dtype), mask=mask)
    tl.store(out_ptrs + half, (second * cos + first * sin).to(dtype), mask=mask)
